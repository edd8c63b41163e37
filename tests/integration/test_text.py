"""Language models from the command line: train, eval, generate, analyze, scale, on real files."""

import json
import random

import pytest
import torch
from huggingface_hub import ModelCard
from transformers import GPT2LMHeadModel

from tests.integration.commands import succeed, vitlab
from vitlab.config import UserError, read_yaml
from vitlab.models import build_model
from vitlab.training.finished import load_run
from vitlab.training.load import load_weights

WORDS = ["the", "a", "small", "<x>", "red <x>", "cat", "dog", "bird", "sees", "likes", "hears", "and", "it", "runs"]
TINY = ["task=causal_lm", "model.width=24", "model.depth=2", "data.length=16", "data.vocabulary=300"]
TINY += ["trainer.evaluations=2", "trainer.log_every=3", "recipe.batch_size=8", "wandb.mode=off"]
HALF = ["data=textfile", "budget.steps=90", "train_size=0.5"]


@pytest.fixture(scope="module")
def corpus(tmp_path_factory):
    """A folder of 24 small text files, with what must be escaped in a page."""
    folder = tmp_path_factory.mktemp("corpus")
    generator = random.Random(7)
    for number in range(24):
        starts = [generator.randrange(len(WORDS)) for _ in range(30)]
        lines = [" ".join((WORDS + WORDS)[first : first + 9]) for first in starts]
        lines[0] = "é 中 \U0001f600" if number % 2 else lines[0]
        (folder / f"{number}.txt").write_text("\n".join(lines))
    return folder


@pytest.fixture(scope="module")
def run(corpus, tmp_path_factory):
    """A finished run of a tiny GPT."""
    folder = tmp_path_factory.mktemp("text") / "gpt"
    succeed("train", *TINY, *HALF, f"data.path={corpus}", "--out", folder)
    return folder


def test_a_run_of_text_leaves_its_files_and_its_metrics(run):
    result = json.loads((run / "result.json").read_text())
    assert result["perplexity"] < result["unigram_perplexity"]
    assert result["bits_per_byte"] > 0
    assert (result["unit"], result["family"], result["accuracy"]) == ("token", "gpt", None)
    assert result["train_items"] == result["train_size"] // 16
    rows = json.loads((run / "analysis" / "head_patterns.json").read_text())["rows"]
    assert {row["step"] for row in rows} == {0, 90}
    assert {row["label"] for row in rows} <= {*("previous token", "same token", "null", "mixed", "none")}
    loaded = load_run(run)
    assert loaded.shape == {"length": 16, "vocabulary": loaded.model.vocabulary, "head": "next_token"}
    assert loaded.tokenizer.decode(*loaded.tokenizer.encode("a text")) == "a text"


def test_weights_of_a_run_name_the_options_that_a_model_lacks(run):
    trained = load_run(run)
    shape = {key: trained.shape[key] for key in ("vocabulary", "length")}
    other = build_model(
        "gpt_nano", depth=trained.config.model.depth, width=trained.config.model.width, mlp="swiglu", **shape
    )
    with pytest.raises(UserError, match=r"weights of another model: .*; give model.*mlp=gelu_tanh"):
        load_weights(other, run)


def test_text_is_generated_in_every_way(run):
    words = ["generate", run, "--prompt", "the small", "--tokens", "8"]
    greedy = succeed(*words, "--temperature", "0", "--json")
    (one,) = json.loads(greedy.stdout)["samples"]
    assert 1 <= one["tokens"] <= 8
    assert one["ended"] in ("end", "tokens", "model")
    beam = vitlab(*words, "--beams", "1", "--json")
    assert json.loads(beam.stdout)["samples"][0]["text"] == one["text"]
    drawn = [vitlab(*words, "--samples", "3", "--top-k", "20", "--top-p", "0.9", "--seed", seed) for seed in (1, 1, 2)]
    assert drawn[0].stdout == drawn[1].stdout != drawn[2].stdout
    assert drawn[0].stdout.count("--- ") == 3
    assert drawn[0].stdout.count("the small") >= 3
    assert vitlab("generate", run, "--tokens", "5").returncode == 0, "without a prompt"


def test_a_run_is_evaluated_on_its_own_and_other_texts_with_its_own_tokens(run, tmp_path):
    own = succeed("eval", run, "--json")
    found, result = json.loads(own.stdout), json.loads((run / "result.json").read_text())
    for name in ("perplexity", "unigram_perplexity"):
        assert found[name] == pytest.approx(result[name], rel=1e-4)
    (tmp_path / "other.txt").write_text("the cat sees the bird and then it runs under the tree.\n" * 40)
    (tmp_path / "more.txt").write_text("the dog hears the small bird and it sleeps over the house.\n" * 40)
    short = ["data=textfile", f"data.path={tmp_path}", "data.test_share=0.5"]
    other = succeed("eval", run, *short, "data.length=16", "--json")
    assert json.loads(other.stdout)["perplexity"] > 1
    longer = vitlab("eval", run, *short, "data.length=32")
    assert longer.returncode == 2
    assert "has length=32, but the run's model was trained with 16" in longer.stderr


def test_attention_is_drawn_of_held_out_and_of_given_texts(run, tmp_path):
    succeed("analyze", run, "--out", tmp_path / "held")
    assert {path.name for path in (tmp_path / "held").iterdir()} >= {"attention.html", "head_patterns.json"}
    nasty = "</b><x>"
    succeed("analyze", run, "--text", nasty, "--pair", "the cat", "it runs", "--out", tmp_path / "given")
    assert "</b><x>" not in (tmp_path / "given" / "attention.html").read_text()
    empty = vitlab("analyze", run, "--text", "", "--out", tmp_path / "empty")
    assert empty.returncode == 2
    assert empty.stderr.splitlines()[-1] == "vitlab: --text: the text has no tokens; give some words"
    long = vitlab("analyze", run, "--text", "cat " * 60, "--out", tmp_path / "long")
    assert (long.returncode, "the model takes up to 16" in long.stderr) == (2, True)


def test_a_study_of_tokens_leaves_perplexities_and_a_report(corpus, tmp_path):
    study = tmp_path / "study.yaml"
    study.write_text(
        "models: [gpt_nano]\n"
        f"data: {{name: textfile, path: '{corpus}', length: 16, vocabulary: 300}}\n"
        "task: causal_lm\nsizes: [480, 3200]\nset: [recipe.batch_size=8, model.width=24, model.depth=1]\n"
        "budget: {steps: 12}\ntrainer: {evaluations: 1, log_every: 3}\nanalyses: []\nwandb: {mode: 'off'}\n"
    )
    out = tmp_path / "out"
    done = succeed("scale", study, "--out", out)
    header, *rows = (out / "results.csv").read_text().splitlines()
    assert {"perplexity", "bits_per_byte", "unit"} <= set(header.split(","))
    assert len(rows) == 2
    assert "training tokens" in done.stdout
    assert "perplexity" in done.stdout
    page = (out / "report.html").read_text()
    assert "<x>" not in page.partition('<script type="application/json"')[0]
    assert "&lt;x&gt;" in page, "an excerpt of the texts"
    manifest = json.loads(next((out / "subsets").iterdir()).read_text())
    assert [one["size"] for one in manifest["subsets"]] == [480, 3200]
    assert manifest["train_tokens"] >= 3200
    assert read_yaml(out / "study.yaml")["task"]["kind"] == "causal_lm"
    again = vitlab("scale", study, "--out", out)
    assert "2 finished already" in again.stderr


def test_a_language_model_goes_to_hugging_face_and_comes_back(corpus, tmp_path):
    words = ["train", *TINY, "data=textfile", f"data.path={corpus}", "model.positions=learned", "analyses=[]"]
    succeed(*words, "budget.steps=6", "--out", tmp_path / "run")
    succeed("export", tmp_path / "run", tmp_path / "folder", "--format", "hub")
    assert "GPT2LMHeadModel.from_pretrained" in ModelCard.load(tmp_path / "folder" / "README.md").text
    theirs = GPT2LMHeadModel.from_pretrained(tmp_path / "folder").eval()
    ours = load_run(tmp_path / "run").model
    tokens = torch.randint(ours.vocabulary, (2, 11))
    torch.testing.assert_close(ours(tokens), theirs(tokens).logits, rtol=1e-5, atol=1e-5)
    words_of = ["--prompt", "the", "--temperature", "0"]
    texts = [vitlab("generate", tmp_path / name, *words_of).stdout for name in ("run", "folder")]
    assert texts[0] == texts[1] != ""
    shown = ["task=causal_lm", "data=textfile", f"data.path={corpus}", "data.length=16", "--text", "the <x>"]
    succeed("analyze", tmp_path / "folder", *shown, "--out", tmp_path / "looked")
    assert {path.name for path in (tmp_path / "looked").iterdir()} >= {"attention.html", "attention_entropy.json"}
    given = [f"data.tokenizer={tmp_path}/folder/tokenizer.json", "budget.steps=3", f"init={tmp_path}/folder"]
    again = succeed(*words, *given, "--out", tmp_path / "again")
    assert "missing" not in again.stderr


def test_an_encoder_goes_from_text_to_images_and_back(corpus, tmp_path):
    sizes = ["model.width=24", "model.mlp_width=48", "model.depth=2", "model.heads=4"]
    sizes += ["budget.steps=4", "analyses=[]", "wandb.mode=off"]
    text = ["task=masked_lm", "data=textfile", f"data.path={corpus}", "data.length=16", "data.vocabulary=300"]
    images = ["model=vit_nano", "data=digits"]
    succeed("train", *text, *sizes, "--out", tmp_path / "text")
    for words, source, name in ((images, "text", "vit"), (text, "vit", "bert")):
        succeed("train", *words, *sizes, f"init.encoder={tmp_path / source}", "--out", tmp_path / name)
        report = json.loads((tmp_path / name / "init.json").read_text())
        assert len(report["loaded"]) == 26
        assert (report["missing"], report["unused"]) == ([], [])
    done = vitlab("train", *images, "model.width=36", f"init.encoder={tmp_path / 'text'}", "--out", tmp_path / "wide")
    assert (done.returncode, "weights of another model: the weights have no blocks.2" in done.stderr) == (2, True)
    done = vitlab("train", "model=resnet_nano", f"init.encoder={tmp_path / 'text'}", "--out", tmp_path / "resnet")
    assert (done.returncode, "has no transformer encoder" in done.stderr) == (2, True)
    done = vitlab("train", *images, "init.encoder=x", "init.weights=y", "--out", tmp_path / "both")
    assert (done.returncode, "give one of them" in done.stderr) == (2, True)
