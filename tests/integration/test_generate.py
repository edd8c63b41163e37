"""`vitlab generate` with a file: order, scores, and what is wrong with the files."""

import json
import random
import subprocess
import sys

import pytest
from PIL import Image

from tests.integration.commands import succeed, vitlab
from vitlab.studies.outcomes import read_outcomes
from vitlab.training import writer

SMALL = ["task=translation", "data=numbers", "data.count=300", "model.width=24", "model.heads=2", "model.depth=1"]
SMALL += ["budget.steps=80", "recipe.batch_size=16", "trainer.evaluations=1", "trainer.threads=1", "wandb.mode=off"]
SMALL += ["trainer.precision=32-true"]  # in bf16, the likeliest of two tokens depends on the batch
SOURCES = ["forty two", "one", "seven hundred and four thousand twelve", "nine", "eighty one thousand", "ninety three"]
REFERENCES = ["42", "1", "704012", "9", "81000", "93"]


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    out = tmp_path_factory.mktemp("runs") / "numbers"
    succeed("train", *SMALL, "--out", out)
    return out


@pytest.fixture
def files(tmp_path):
    (tmp_path / "in.txt").write_text("\n".join(SOURCES) + "\n")
    (tmp_path / "ref.txt").write_text("\n".join(REFERENCES) + "\n")
    return tmp_path


def write(run, files, *words, source="in.txt", out="out.txt"):
    (files / "out.txt").unlink(missing_ok=True)
    return vitlab("generate", run, "--input", files / source, "--out", files / out, *words)


@pytest.mark.parametrize("search", [[], ["--beams", "3", "--length-penalty", "0.6"]], ids=["greedy", "beams"])
def test_lines_are_written_in_order_as_each_alone_whatever_the_batch(run, files, search):
    texts = []
    for size in ("1", "4", "32"):
        done = write(run, files, "--batch-size", size, *search)
        assert (done.returncode, done.stderr) == (0, "")
        texts.append((files / "out.txt").read_text())
    alone = [vitlab("generate", run, "--prompt", source, *search).stdout for source in SOURCES]
    assert texts == ["".join(alone)] * 3
    assert len(texts[0].split("\n")) == len(SOURCES) + 1


@pytest.fixture(scope="module")
def one_sequence(tmp_path_factory):
    """A language model that writes targets behind sources."""
    folder, drawn = tmp_path_factory.mktemp("pairs"), random.Random(1)
    rows = [drawn.choices(["the", "cat", "dog", "sees", "a", "bird", "house"], k=2) for _ in range(200)]
    lines = [f"{' '.join([row[0]] * 5)} {row[1]}\t{row[0]}" for row in rows]
    (folder / "pairs.tsv").write_text("\n".join(["long\tshort", *lines]) + "\n")
    words = ["task=summarization", "model=gpt_nano", "data=tsv", f"data.path={folder / 'pairs.tsv'}"]
    words += ["data.text=[long,short]", "data.length=16", "data.target_length=8", "data.vocabulary=300", *SMALL[3:]]
    words += ["budget.steps=80", "recipe.lr=0.01"]  # until it has learned to write more than the likeliest word
    succeed("train", *words, "--out", folder / "run")
    return folder / "run"


@pytest.mark.parametrize("kind", ["run", "one_sequence"])
def test_what_the_run_wrote_of_its_test_items_is_written_again(kind, request, tmp_path):
    run = request.getfixturevalue(kind)
    kept, result = (json.loads((run / name).read_text()) for name in ("generated.json", "result.json"))
    for name, key in (("in", "source"), ("ref", "reference")):
        (tmp_path / f"{name}.txt").write_text("\n".join(one[key] for one in kept))
    scores = json.loads(write(run, tmp_path, "--reference", tmp_path / "ref.txt", "--json").stdout)
    assert len(kept) == result["test_items"]
    assert all(result[key] == pytest.approx(scores[key]) for key in {"exact_match", "bleu"} & result.keys())
    assert (tmp_path / "out.txt").read_text().splitlines() == [one["generated"] for one in kept]
    assert len({one["generated"] for one in kept}) > 1
    scored = {"exact_match", "rouge_l", "rouge_l_lead"} & result.keys()
    assert scored
    assert {f"validation_{name}" for name in scored} <= result.keys(), "what a study is about, for its choices"


def test_the_scores_are_those_of_sacrebleus_own_command(run, files):
    drawn = ["--temperature", "4", "--seed", "8"]  # hot: several words a line
    assert write(run, files, *drawn).returncode == 0
    wanted = (files / "out.txt").read_text().split("\n")
    wanted[0], wanted[3] = wanted[3], wanted[0] + "."
    (files / "ref.txt").write_text("\n".join(wanted))
    own = json.loads(write(run, files, *drawn, "--reference", files / "ref.txt", "--json").stdout)
    command = [sys.executable, "-m", "sacrebleu", files / "ref.txt", "-i", files / "out.txt", "-m", "bleu", "chrf"]
    theirs = json.loads(subprocess.run([*command, "-w", "6"], capture_output=True, text=True, check=True).stdout)
    assert [round(own[name], 6) for name in ("bleu", "chrf")] == [one["score"] for one in theirs]
    assert 0 < own["bleu"] < 100
    assert own["exact_match"] == pytest.approx(4 / 6)


def test_what_is_wrong_with_the_files_is_said_and_nothing_is_written(run, files):
    (files / "gaps.txt").write_text("one\n\ntwo\n \n")
    (files / "long.txt").write_text("one\n" + "forty " * 60 + "\n")
    (files / "bytes.txt").write_bytes(b"one\xff\n")
    before = sorted(path.name for path in files.iterdir())
    asked = [
        (["--reference", files / "gaps.txt"], {}, ["has no text on line 2, 4;", "has 4 lines, but --input"]),
        (["--reference", files / "none.txt"], {}, ["none.txt: no such file"]),
        ([], {"source": "long.txt"}, ["line 2 has", "takes 24"]),
        ([], {"source": "bytes.txt"}, ["byte 3 (0xff) is not UTF-8"]),
        ([], {"out": "in.txt"}, ["in.txt: exists; delete it"]),
        ([], {"out": "."}, ["is a folder"]),
        ([], {"out": "in.txt/out.txt"}, ["cannot write there"]),
        (["--beams", "2", "--top-k", "3"], {}, ["--beams cannot be combined with sampling options (--top-k)"]),
        (["--prompt", "one"], {}, ["--prompt: not allowed with argument --input"]),
    ]
    for words, names, says in asked:
        done = write(run, files, *words, **names)
        assert (done.returncode, done.stdout) == (2, ""), says
        assert all(text in done.stderr for text in says), (says, done.stderr)
        assert all(line.startswith("vitlab: ") for line in done.stderr.splitlines())
    assert sorted(path.name for path in files.iterdir()) == before
    assert (files / "in.txt").read_text().split() == " ".join(SOURCES).split()


def test_a_stopped_command_leaves_nothing(run, files, monkeypatch):
    before, batches = sorted(files.iterdir()), []

    def stop(*args, **options):
        batches.append(args)
        if len(batches) > 1:
            raise KeyboardInterrupt
        return real(*args, **options)

    real = writer.write_rows
    monkeypatch.setattr(writer, "write_rows", stop)
    stopped = write(run, files, "--batch-size", "2")
    assert stopped.returncode == 130
    assert sorted(files.iterdir()) == before


def test_a_run_that_writes_no_text_is_refused(finished, files):
    done = write(finished, files)
    assert done.returncode == 2
    assert "writes no text; give a run of a task that does" in done.stderr


def test_pictures_are_captioned_by_their_paths(tmp_path):
    words = ["task=captioning", "data.train_images=60", "data.test_images=20", "budget.steps=4", *SMALL[7:]]
    succeed("train", *words, "--out", tmp_path / "run")
    paths = [tmp_path / f"{level}.png" for level in (40, 200)]
    for path in paths:
        Image.new("L", (48, 48), int(path.stem)).save(path)
    (tmp_path / "in.txt").write_text("\n".join(map(str, paths)))
    assert write(tmp_path / "run", tmp_path).returncode == 0
    alone = [succeed("generate", tmp_path / "run", "--prompt", path).stdout for path in paths]
    assert (tmp_path / "out.txt").read_text() == "".join(alone)


@pytest.mark.parametrize(("kind", "key"), [("run", "exact_match"), ("one_sequence", "rouge_l")])
def test_the_score_of_each_text_is_kept_for_intervals(kind, key, request):
    run = request.getfixturevalue(kind)
    result, kept = (json.loads((run / name).read_text()) for name in ("result.json", "generated.json"))
    outcomes = read_outcomes(run / "heldout.npz")
    assert (outcomes.key, len(outcomes.means)) == (key, len(kept))
    assert outcomes.means.mean() == pytest.approx(result[key], abs=1e-4)
    right = [item for item, one in zip(outcomes.means, kept, strict=True) if one["reference"] == one["generated"]]
    assert right == [1] * len(right)
    assert json.loads(succeed("eval", run, "task.test_items=3", "--json").stdout)["pairs"] == 3
