"""What a GPU would refuse, seen on a CPU: operations that CUDA has no deterministic kernel for, and two devices in one.

Each row of tests/matrix.py is trained, tested, analysed and probed on a GPU that only seems to be there
(tests/seeming_gpu.py), in bf16, then asked by `vitlab predict`, `generate` and `eval`. `-s` prints what that covers.
"""

import re
import sys

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from PIL import Image
from torch import nn
from torch.nn.functional import interpolate, nll_loss

from tests.integration.commands import vitlab as call
from tests.integration.test_train import EVERYTHING, RANDOM
from tests.matrix import ROWS, configure, list_accepted, small_world
from tests.runs import train_run
from tests.seeming_gpu import THROWS, TORCH, seeming_gpu
from vitlab.config import names
from vitlab.models.base import as_model
from vitlab.tasks import metrics
from vitlab.training.files import RunFiles
from vitlab.training.finished import KINDS, load_run

DECODING = (["--top-k", "5", "--top-p", "0.9", "--samples", "3"], ["--beams", "3"], ["--temperature", "0"])
WORDS = {"span_extraction": "where is the box [SEP] the box is here"}
MUCH = [*EVERYTHING, *RANDOM, "recipe.batch_size=8", "budget.steps=12"]
OTHERS = ("resnet_nano", "mixer_nano", "fnet_nano", "color_histogram")


@pytest.fixture(scope="module")
def live(tmp_path_factory):
    """Gives what a row did on the seeming GPU in bf16: its `Rules` and the names that it covered; each once."""
    done = {}

    def run(row):
        if row not in done:
            with seeming_gpu(bf16=True) as rules:
                done[row] = rules, use(row, tmp_path_factory.mktemp("row"))
            print(f"{row}: {', '.join(sorted(done[row][1]))}", file=sys.stderr)
        return done[row]

    with small_world(tmp_path_factory.mktemp("table")) as folder:
        run.folder = folder
        yield run


@pytest.fixture(autouse=True)
def own_folder(live, monkeypatch):
    monkeypatch.chdir(live.folder)


def use(row, folder):
    """Everything that is done with a row; gives the names of the catalogs that it covered."""
    config = configure(row, *list_accepted(row))
    of_images = config.data.modality == "image"
    result = train_run(config, folder / "run")
    assert (result["settings"]["accelerator"], result["precision"]) == ("gpu", "bf16-mixed")
    assert not RunFiles(folder / "run").error()
    picture = folder / "picture.png"
    Image.fromarray(np.arange(1200, dtype=np.uint8).reshape(20, 20, 3)).save(picture)
    prompt = picture if of_images else WORDS.get(row, "a [MASK] of it")
    asked = (
        [["predict", folder / "run", prompt]] if config.task.kind in KINDS and row not in ("choices", "tags") else []
    )
    if as_model(load_run(folder / "run").model).decoding is not None:
        asked += [["generate", folder / "run", "--prompt", prompt, "--tokens", "4", *how] for how in DECODING]
    asked += [["eval", folder / "run", "probes=[]"]] if of_images else []
    for words in asked:
        answer = call(*words)
        assert answer.returncode == 0, answer.stderr
    seen = {f"analysis {name}" for name in names("analysis") if RunFiles(folder / "run").analysis(name)}
    known = {family(metric.key) for metric in metrics.METRICS}
    seen |= {f"metric {family(key)}" for key, value in result.items() if value is not None and family(key) in known}
    return seen | {f"probe {family(name)}" for name in config.probes} | {f"asked {words[0]}" for words in asked}


def family(name):
    """`fewshot_5@digits` is fewshot."""
    return re.sub(r"(_\d+)?(@.*)?$", "", name)


@pytest.mark.parametrize("row", ROWS)
def test_a_deterministic_run_on_a_gpu_is_refused_no_operation_and_no_two_devices_meet(row, live):
    rules = live(row)[0]
    assert not rules.refused | rules.met | rules.halved


@pytest.mark.parametrize("words", [MUCH, *([f"model={name}"] for name in OTHERS)], ids=lambda words: words[0])
def test_augmentations_optimizers_and_other_models_keep_the_rules(words, live, tmp_path):
    with seeming_gpu() as rules:
        train_run(configure("classification", "analyses=[]", *words), tmp_path / "run")
    assert not rules.refused | rules.met


@pytest.mark.parametrize(("row", "model"), [("causal_lm", "lstm_nano"), ("translation", "gru_seq2seq_nano")])
def test_recurrent_layers_have_no_half_tensor_in_a_bf16_run(row, model, live, tmp_path):
    with seeming_gpu(bf16=True) as rules:
        train_run(configure(row, f"model={model}", "analyses=[]"), tmp_path / "run")
    assert not rules.refused | rules.met | rules.halved


def test_every_metric_analysis_and_probe_of_the_catalogs_is_covered(live):
    covered = set().union(*(live(row)[1] for row in ROWS))
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


AUTOCAST = {
    "linear": (lambda x: F.linear(x, x), torch.bfloat16),
    "an operator": (lambda x: x @ x.mT, torch.bfloat16),
    "attention": (lambda x: F.scaled_dot_product_attention(x[None], x[None], x[None]), torch.bfloat16),
    "a norm": (lambda x: F.layer_norm(x.bfloat16(), (3,)), torch.float32),
    "a loss": (lambda x: F.cross_entropy(x.bfloat16(), torch.zeros(3, device=x.device).long()), torch.float32),
    "a sum": (lambda x: x.bfloat16() + x.bfloat16(), torch.bfloat16),
    "recurrent layers": (lambda x: nn.LSTM(3, 3).cuda()(x)[0], torch.float16),
}


@pytest.mark.parametrize("name", AUTOCAST)
def test_autocast_has_the_types_that_it_has_on_cuda(name):
    act, dtype = AUTOCAST[name]
    with seeming_gpu(bf16=True) as rules:
        x = torch.ones(3, 3, device="cuda", requires_grad=True)
        assert act(x).dtype != torch.float16
        with torch.autocast("cuda", dtype=torch.bfloat16):
            made = act(x)
        made.float().sum().backward()
    assert (made.dtype, x.grad.dtype, bool(rules.halved)) == (dtype, torch.float32, dtype == torch.float16)


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
