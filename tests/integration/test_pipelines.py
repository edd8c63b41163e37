"""Runs of texts in transformers: what `vitlab export` writes answers to texts as `vitlab predict` does."""

import json
import random

import numpy as np
import pytest
import timm
import torch
import transformers
from PIL import Image
from transformers import pipeline

from tests.integration.commands import succeed, vitlab
from vitlab.config import UserError
from vitlab.models import build_model
from vitlab.models.base import extract_features
from vitlab.training.finished import load_run
from vitlab.training.load import load_weights

OPTIONS = ["model=bert_nano", "model.positions=learned", "model.norm_first=false", "model.pool=token", "model.depth=1"]
OPTIONS += ["model.width=24", "model.heads=2", "data.vocabulary=300", "budget.steps=30", "trainer.evaluations=1"]
OPTIONS += ["recipe.batch_size=8", "wandb.mode=off", "analyses=[]", "trainer.precision=32-true", "data.length=32"]
WORDS = ["red", "box", "cat", "sees", "the", "small", "blue", "dog", "bird", "runs", "and", "it"]
CHOSEN = random.Random(3)
TEXTS = [" ".join(CHOSEN.choices(WORDS, k=CHOSEN.randint(3, 8))) for _ in range(120)]


def train(folder, *words):
    succeed("train", *OPTIONS, *words, "--out", folder / "run")
    succeed("export", folder / "run", folder / "hub", "--format", "hub")
    return load_run(folder / "run"), str(folder / "hub")


def test_a_classifier_of_texts_answers_in_a_pipeline_as_predict_does(tmp_path):
    rows = [f"{text},{'animal' if 'cat' in text else 'other'}" for text in TEXTS]
    (tmp_path / "texts.csv").write_text("\n".join(["text,label", *rows]))
    run, folder = train(tmp_path, "task=text_classification", "data=csv", f"data.path={tmp_path}/texts.csv")
    succeed("predict", tmp_path / "run", *TEXTS[:9], "--embed", tmp_path / "vectors.npy")
    assert not (tmp_path / "run" / "calibration.json").exists(), "vectors need no temperature"
    mine = json.loads(succeed("predict", tmp_path / "run", *TEXTS[:100], "--json").stdout)
    found = pipeline("text-classification", model=folder, top_k=None, function_to_apply="none")(TEXTS[:100])
    logits = np.array([[{row["label"]: row["score"] for row in rows}[name] for name in run.classes] for rows in found])
    shares = torch.tensor(logits / mine["temperature"]).softmax(dim=1).numpy()
    wanted = np.array([[*item["probabilities"].values()] for item in mine["items"]])
    np.testing.assert_allclose(shares, wanted, atol=1e-6)
    frame = [run.tokenizer.start, *run.tokenizer.encode(TEXTS[8])[0], run.tokenizer.end]
    vector = extract_features(run.model, torch.tensor([frame])).detach().numpy()
    np.testing.assert_allclose(run.embed(TEXTS[:9]), np.load(tmp_path / "vectors.npy"), atol=1e-6)
    table = run.predict(TEXTS[:100])
    np.testing.assert_allclose(table[[*run.classes]], wanted, atol=1e-6)
    assert [*table["prediction"]] == [item["prediction"] for item in mine["items"]]
    np.testing.assert_allclose(run.model(*run.prepare(TEXTS[:100])).detach().numpy(), logits, atol=1e-5)
    assert [*run.predict(TEXTS[0])["prediction"]] == [table["prediction"][0]]
    with pytest.raises(UserError, match="it has no tokens"):
        run.predict(["a text", ""])
    np.testing.assert_allclose(np.load(tmp_path / "vectors.npy")[8:], vector, atol=1e-5)
    again = build_model(run.config.model.name, **vars_of(run), head="classes", num_classes=2)
    assert not load_weights(again, folder, classes=run.classes).new, "vitlab reads what it writes, the head too"
    config = ["task=text_classification", "data=csv", f"data.path={tmp_path}/texts.csv", f"model={folder}"]
    succeed("train", *config, "data.length=32", "budget.steps=1", "wandb.mode=off", "--out", tmp_path / "again")


def vars_of(run):
    keys = ("positions", "norm_first", "pool", "depth", "width", "heads")
    return {key: vars(run.config.model)[key] for key in keys} | {
        key: run.shape[key] for key in ("length", "vocabulary")
    }


def test_a_classifier_of_tokens_tags_words_in_a_pipeline(tmp_path):
    lines = ["\n".join(f"{word}\t{'A' if word in ('cat', 'dog') else 'O'}" for word in text.split()) for text in TEXTS]
    (tmp_path / "words.tsv").write_text("\n\n".join(lines))
    run, folder = train(tmp_path, "task=text_classification", "data=conll", f"data.path={tmp_path}/words.tsv")
    assert transformers.AutoConfig.from_pretrained(folder).architectures == ["BertForTokenClassification"]
    tokens = transformers.AutoTokenizer.from_pretrained(folder)(TEXTS[0])["input_ids"]
    frame = [run.tokenizer.start, *run.tokenizer.encode(TEXTS[0])[0], run.tokenizer.end]
    assert tokens == frame, "the tokens that the run reads"
    named = [run.classes[number] for number in run.model(torch.tensor([frame]))[0, 1:-1].argmax(dim=1).tolist()]
    tagged = pipeline("token-classification", model=folder, ignore_labels=[])(TEXTS[0])
    assert [row["entity"] for row in tagged if row["index"] < len(frame) - 1 and row["index"]] == named


@pytest.mark.parametrize(
    ("words", "kind"),
    [
        (["task=span_extraction", "data=facts", "data.vocabulary=420"], "QuestionAnswering"),
        (["task=masked_lm", "data=pydoc"], "PreTraining"),
    ],
)
def test_questions_and_masked_words_are_answered(words, kind, tmp_path):
    run, folder = train(tmp_path, *words, "data.length=64")
    assert transformers.AutoConfig.from_pretrained(folder).architectures == [f"BertFor{kind}"]
    tokenizer = transformers.AutoTokenizer.from_pretrained(folder)
    pair = tokenizer("What is it?", "a text")
    assert pair["input_ids"] == [
        *(run.tokenizer.start, *run.tokenizer.encode("What is it?")[0], run.tokenizer.separator),
        *(*run.tokenizer.encode("a text")[0], run.tokenizer.end),
    ]
    assert (pair["token_type_ids"][0], pair["token_type_ids"][-1]) == (0, 1)
    done = vitlab("predict", tmp_path / "run", "a [MASK] [SEP] b", "--embed", tmp_path / "vectors.npy")
    assert (done.returncode, "leave out [MASK]" in done.stderr) == (2, True), "it would read the marks as letters"
    if kind == "PreTraining":
        (first, *_) = pipeline("fill-mask", model=folder)(f"the {tokenizer.mask_token} of a text")
        assert first["score"] > 0
    else:
        report = load_weights(build_model(folder, head="classes", num_classes=2), folder, classes=["a", "b"])
        assert report.new == ["head.weight", "head.bias"], "places in a text are no classes"


def test_what_transformers_lacks_is_one_line_and_leaves_no_folder(tmp_path):
    (tmp_path / "texts.csv").write_text("\n".join(["text,label", *(f"{text},{'cat' in text}" for text in TEXTS)]))
    words = ["task=text_classification", "data=csv", f"data.path={tmp_path}/texts.csv", "model.pool=mean"]
    succeed("train", *OPTIONS, *words, "--out", tmp_path / "run")
    done = vitlab("export", tmp_path / "run", tmp_path / "hub")
    assert (done.returncode, "BertForSequenceClassification has no model.pool=mean" in done.stderr) == (2, True)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["run", "texts.csv"]


@pytest.mark.parametrize("scale", ["model.layer_scale=null", "model.layer_scale=0.1"])
def test_pictures_are_classified_from_files_and_a_folder_is_read_back(scale, tmp_path):
    generator = np.random.default_rng(0)
    for number, name in enumerate(("dark", "light")):
        (tmp_path / "own" / name).mkdir(parents=True)
        for place in range(40):
            pixels = generator.integers(0, 128, (24, 24, 3)) + 128 * number
            Image.fromarray(pixels.astype(np.uint8)).save(tmp_path / "own" / name / f"{place}.png")
    data = ["data=imagefolder", f"data.root={tmp_path}/own", "data.image_size=24"]
    words = [*OPTIONS[-7:-1], "model=vit_nano", "model.patch_size=8", "model.pool=token", "model.positions=learned"]
    words += ["model.class_token=true", scale, *data]
    words = [word for word in words if not word.startswith("data.length")]
    succeed("train", *words, "--out", tmp_path / "run")
    for kind in ([], ["--format", "hub"]):
        folder = tmp_path / f"folder{len(kind)}"
        succeed("export", tmp_path / "run", folder, *kind)
        files = sorted(map(str, tmp_path.glob("own/*/*.png")))[::4]
        wanted = json.loads(succeed("predict", tmp_path / "run", *files, "--json").stdout)
        if not kind:
            found = pipeline("image-classification", model=str(folder), function_to_apply="none")(files)
            logits = [
                [{row["label"]: row["score"] for row in rows}[name] for name in wanted["classes"]] for rows in found
            ]
        else:
            theirs = timm.create_model(f"local-dir:{folder}", pretrained=True).eval()
            read = timm.data.create_transform(**timm.data.resolve_data_config(model=theirs))
            logits = theirs(torch.stack([read(Image.open(file)) for file in files])).tolist()
        shares = (torch.tensor(logits) / wanted["temperature"]).softmax(dim=1).numpy()
        items = np.array([[*item["probabilities"].values()] for item in wanted["items"]])
        np.testing.assert_allclose(shares, items, atol=1e-5)
        mine = load_run(tmp_path / "run")
        opened = [Image.open(files[0]), np.asarray(Image.open(files[1])), *files[2:]]
        np.testing.assert_allclose(mine.predict(opened)[wanted["classes"]], items, atol=1e-6)
        again = build_model(folder, image_size=24, num_classes=2)
        assert not load_weights(again, folder, classes=mine.classes).new
        pixels = torch.randn(2, 3, 24, 24)
        torch.testing.assert_close(again.eval()(pixels), mine.model(pixels))
        out = ["budget.steps=1", "wandb.mode=off", "analyses=[]", "--out", tmp_path / f"again{len(kind)}"]
        succeed("train", f"model={folder}", *data, *out)
        succeed("eval", folder, "probes=[]", *data, "--out", tmp_path / f"eval{len(kind)}")
