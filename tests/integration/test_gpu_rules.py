"""What a GPU would refuse, seen on a CPU: operations that CUDA has no deterministic kernel for, and two devices in one.

Each task of the catalog is trained, tested, analysed and probed on a GPU that only seems to be there
(tests/seeming_gpu.py), then asked by `vitlab predict`, `generate` and `eval`. `-s` prints what that covers.
"""

import re
import sys
from dataclasses import replace

import numpy as np
import pytest
import torch
from PIL import Image
from torch.nn.functional import interpolate, nll_loss

import vitlab.data
from tests.conftest import ROOT
from tests.integration.commands import vitlab as call
from tests.integration.test_train import EVERYTHING, RANDOM
from tests.runs import train_run
from tests.seeming_gpu import CUDA, THROWS, TORCH, place_of, seeming_gpu
from tests.texts import ragged
from vitlab.config import TrainConfig, compose, load, names
from vitlab.data.base import Split, take_items
from vitlab.models.base import as_model
from vitlab.studies import experiment
from vitlab.tasks import metrics
from vitlab.tasks.base import fill, judge, make_metrics
from vitlab.training.checkpoints import load_run
from vitlab.training.files import RunFiles
from vitlab.training.predict import KINDS

COUNTS = {"train": 64, "validation": 20, "test": 20}
SMALL = ["budget.steps=2", "recipe.batch_size=8", "recipe.warmup=0", "recipe.ema=null", "wandb.mode=off"]
SMALL += ["train_size=all", "trainer.evaluations=1", "trainer.workers=0"]
QUICK = {  # in place of Python's docstrings, which take seconds to read
    "pydoc": ["data=textfile", f"data.path={ROOT / 'docs'}", "data.length=32"],
    "docstrings": ["data=tsv", "data.path=table.tsv", "data.length=16", "data.text=long", "data.label=short"],
    "summaries": ["data=tsv", "data.path=table.tsv", "data.length=16", "data.text=[long,short]"],
}
DECODING = (["--top-k", "5", "--top-p", "0.9", "--samples", "3"], ["--beams", "3"], ["--temperature", "0"])
WORDS = {"span_extraction": "where is the box [SEP] the box is here"}
NUMBERS = (metrics.NUMBERS, metrics.MEASURES)  # of one output each
OF = (*metrics.CLASSES, metrics.CHOICES, metrics.LABELS, *NUMBERS)
MUCH = [*EVERYTHING, *RANDOM, "recipe.batch_size=8", "budget.steps=12"]
OTHERS = ("resnet_nano", "mixer_nano", "fnet_nano", "color_histogram")


class Coloured:
    """Pictures in three channels, which some analyses ask for."""

    decoded = True

    def __init__(self, read):
        self.read = read

    def __call__(self, rows):
        images = self.read(rows)
        return images if images.shape[1] == 3 else images.repeat(3, axis=1)


def few(split, count):
    rows = np.arange(0, len(split), max(1, len(split) // count))[:count]
    if isinstance(split, Split):
        return replace(taken := take_items(split, rows), read=Coloured(taken.read))
    parts, tags = tuple(ragged([part[row][:60] for row in rows]) for part in split.parts), split.tags
    tags = None if tags is None else ragged([tags[row][:60] for row in rows])
    targets = None if split.targets is None else split.targets[rows]
    return replace(split, parts=parts, labels=split.labels[rows], targets=targets, tags=tags)


def configure(task, *words):
    """A short run of a task with the data, the model and the recipe that it has by default."""
    fewer = [f"data.{key}=300" for key in ("train_images", "test_images", "count")]
    words = [*words, *(["data.exact=false"] if task == "translation" else [])]  # for BLEU and chrF; captions are exact
    data = compose(TrainConfig, [f"task={task}"]).data
    words += QUICK.get(data.name, [])
    return compose(TrainConfig, [f"task={task}", *(w for w in fewer if w[5:-4] in vars(data)), *SMALL, *words])


@pytest.fixture(scope="module")
def live(tmp_path_factory):
    """Gives what a task did on the seeming GPU: its `Rules` and the names that it covered; each once."""
    opened, loaded, done = vitlab.data.load, experiment.load, {}
    lines = [f"the {n % 7} cats see {n % 11} dogs\t{('none', 'one', 'many')[n % 3]}" for n in range(300)]
    folder = tmp_path_factory.mktemp("table")
    (folder / "table.tsv").write_text("\n".join(["long\tshort", *lines]))

    def open_few(config, *args, **options):
        data = opened(config, *args, **options)
        channels = {"channels": 3} if hasattr(data, "channels") else {}
        return replace(data, **channels, **{part: few(split, COUNTS[part]) for part, split in data.splits.items()})

    def shorten(group, name):
        config = loaded(group, name)
        if group == "analysis":
            return replace(config, examples=min(config.examples, 8))
        return replace(config, labels=[30], steps=2) if group == "probe" and config.kind == "finetune" else config

    def run(task):
        if task not in done:
            patch.chdir(folder)
            with seeming_gpu() as rules:
                done[task] = rules, use(task, tmp_path_factory.mktemp(task))
            print(f"{task}: {', '.join(sorted(done[task][1]))}", file=sys.stderr)
        return done[task]

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(vitlab.data, "load", open_few)
        patch.setattr(experiment, "load", shorten)
        yield run


def use(task, folder):
    """Everything that is done with a task; gives the names of the catalogs that it covered."""
    of_images = load("task", task).modality == "image"
    probes = [f"{name}@digits" if name == "finetune" else name for name in names("probe")]
    words = [f"probes=[{','.join(probes)}]"] if task == "classification" else []
    config = configure(task, f"analyses=[{','.join(names('analysis'))}]", *words)
    result = train_run(config, folder / "run")
    assert result["settings"]["accelerator"] == "gpu"
    picture = folder / "picture.png"
    Image.fromarray(np.arange(1200, dtype=np.uint8).reshape(20, 20, 3)).save(picture)
    prompt = picture if of_images else WORDS.get(task, "a [MASK] of it")
    asked = [["predict", folder / "run", prompt]] if task in KINDS else []
    if as_model(load_run(folder / "run").model).decoding is not None:
        asked += [["generate", folder / "run", "--prompt", prompt, "--tokens", "4", *how] for how in DECODING]
    asked += [["eval", folder / "run", "probes=[]"]] if of_images else []
    asked += [["analyze", folder / "run", "attention_entropy", "--out", folder / "again"]] if of_images else []
    for words in asked:
        torch.set_float32_matmul_precision("highest")
        answer = call(*words)
        assert answer.returncode == 0, answer.stderr
        assert torch.get_float32_matmul_precision() == "high", f"{words[0]}: TF32, as in training"
    seen = {f"analysis {name}" for name in names("analysis") if RunFiles(folder / "run").analysis(name)}
    known = {family(metric.key) for metric in metrics.METRICS}
    seen |= {f"metric {family(key)}" for key, value in result.items() if value is not None and family(key) in known}
    return seen | {f"probe {family(name)}" for name in config.probes} | {f"asked {words[0]}" for words in asked}


def family(name):
    """`fewshot_5@digits` is fewshot."""
    return re.sub(r"(_\d+)?(@.*)?$", "", name)


def measure(of, outputs):
    """All metrics of a kind in two updates; gives them."""
    scale = (0.0, 1.0) if of in NUMBERS else None
    made = make_metrics(of, outputs, detailed=True).to(CUDA)
    for size in (9, 5):
        targets = torch.randint(outputs, (size,)) if of in metrics.EVERY else torch.rand(size).round()
        targets = torch.rand(size, outputs).round() if of == metrics.LABELS else targets
        fill(made, judge(of, torch.randn(size, outputs).cuda(), targets.cuda(), scale))
    assert all(place_of(value) == CUDA for value in made.compute().values())
    return {f"metric {name}" for name in made}


@pytest.fixture(scope="module")
def measured():
    with seeming_gpu() as rules:
        kinds = [(of, outputs) for of in OF for outputs in ((1,) if of in NUMBERS else (2, 7))]
        return rules, set().union(*(measure(*kind) for kind in kinds))


@pytest.mark.parametrize("task", names("task"))
def test_a_deterministic_run_on_a_gpu_is_refused_no_operation_and_no_two_devices_meet(task, live):
    rules = live(task)[0]
    assert not rules.refused | rules.met


@pytest.mark.parametrize("words", [MUCH, *([f"model={name}"] for name in OTHERS)], ids=lambda words: words[0])
def test_augmentations_optimizers_and_other_models_keep_the_rules(words, live, tmp_path):
    with seeming_gpu() as rules:
        train_run(configure("classification", "analyses=[]", *words), tmp_path / "run")
    assert not rules.refused | rules.met


def test_metrics_keep_the_rules(measured):
    assert not measured[0].refused | measured[0].met


def test_every_metric_analysis_and_probe_of_the_catalogs_is_covered(live, measured):
    covered = measured[1].union(*(live(task)[1] for task in names("task")))
    wanted = {f"metric {family(metric.key)}" for metric in metrics.METRICS}
    wanted |= {f"{group} {name}" for group in ("analysis", "probe") for name in names(group)}
    assert wanted - covered == {"metric score", "metric cost"}  # of other programs' runs


WRONG = {
    "two devices": lambda x: x + torch.ones(4),
    "an index there": lambda x: torch.ones(4)[x.long()],
    "a matrix here": lambda x: x @ torch.ones(4, 2),
    "NumPy": lambda x: np.asarray(x),
    "another's random numbers": lambda x: torch.rand(2, device=x.device, generator=torch.Generator()),
    "weighted counts": lambda x: torch.bincount(x.long(), weights=x),
    "a median with its place": lambda x: x.median(dim=0),
    "a gradient of resizing": lambda x: (
        interpolate(x.view(1, 1, 2, 2).requires_grad_(), 5, mode="bilinear").sum().backward()
    ),
    "a loss of pixels": lambda x: nll_loss(x.view(1, 2, 1, 2), torch.zeros(1, 1, 2, device=x.device).long()),
}
RIGHT = {
    "a number": lambda x: x * torch.tensor(2.0) + x.new_tensor(1.0),
    "an index here": lambda x: x[torch.arange(2)],
    "moved": lambda x: (x.cpu() + torch.ones(4)).to(x).add(x).cpu().numpy(),
    "counts": lambda x: torch.bincount(x.long(), minlength=2) + torch.zeros(3, device=x.device).long()[:2].sum(),
    "its own random numbers": lambda x: torch.rand(4, device=x.device, generator=torch.Generator(x.device)) + x,
}


@pytest.mark.parametrize("inference", [False, True])
@pytest.mark.parametrize("name", [*WRONG, *RIGHT])
def test_the_seeming_gpu_notes_what_cuda_refuses_and_nothing_else(name, inference):
    if inference and "gradient" in name:
        return
    with seeming_gpu() as rules, torch.inference_mode(inference):
        {**WRONG, **RIGHT}[name](torch.ones(4, device="cuda"))
    assert bool(rules.refused | rules.met) == (name in WRONG)


def test_the_rules_are_those_of_the_installed_torch():
    """A new torch may refuse more: the data in tests/seeming_gpu.py are compared with what it says itself."""
    throws = torch.use_deterministic_algorithms.__doc__.partition("operations will throw a")[2].partition(
        "In addition"
    )[0]
    entries = re.findall(
        r"^ +\* :\w+:`torch\.(?:nn\.functional\.|nn\.|Tensor\.)?(\w+)`(.*(?:\n +[^*\s].*)*)", throws, re.M
    )
    only_others = re.compile("(?!.*CUDA).*(MPS|quantized)", re.DOTALL)
    of_cuda = {name for name, when in entries if not only_others.match(when)}
    assert of_cuda == set(THROWS), f"as of torch {TORCH}"
