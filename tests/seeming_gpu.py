"""A GPU that only seems to be there: its tensors lie on the CPU and say `cuda:0`, and CUDA's rules hold for them.

Every operation is computed, so code that reads values runs to its end, backward passes too. `Place` answers where a
tensor is, moves tensors, makes new ones, and casts under autocast; `Rules` sees the operations, and notes what a GPU
would refuse, and tensors in float16 under autocast to bfloat16.
"""

import re
import sys
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace
from unittest.mock import patch

import torch
from torch import Tensor
from torch.multiprocessing.reductions import StorageWeakRef
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode

CPU, CUDA = torch.device("cpu"), torch.device("cuda", 0)
TORCH = "2.15"  # whose docstring of use_deterministic_algorithms says what it throws for on CUDA: here by operation
THROWS = {
    "AvgPool3d": "avg_pool3d_backward",
    "AdaptiveAvgPool2d": "_adaptive_avg_pool2d_backward",
    "AdaptiveAvgPool3d": "_adaptive_avg_pool3d_backward",
    "AdaptiveMaxPool2d": "adaptive_max_pool2d_backward",
    "FractionalMaxPool2d": "fractional_max_pool2d_backward",
    "FractionalMaxPool3d": "fractional_max_pool3d_backward",
    "MaxUnpool1d": "max_unpool2d",
    "MaxUnpool2d": "max_unpool2d",
    "MaxUnpool3d": "max_unpool3d",
    "interpolate": "upsample_linear1d_backward upsample_bilinear2d_backward upsample_bicubic2d_backward "
    "upsample_trilinear3d_backward _upsample_bilinear2d_aa_backward _upsample_bicubic2d_aa_backward",
    "ReflectionPad1d": "reflection_pad1d_backward",
    "ReflectionPad2d": "reflection_pad2d_backward",
    "ReflectionPad3d": "reflection_pad3d_backward",
    "NLLLoss": "nll_loss2d_forward",  # (B, C, ...); that of (B, C) is a kernel in order
    "CTCLoss": "_ctc_loss_backward",
    "EmbeddingBag": "_embedding_bag_dense_backward",
    "put_": "put put_",
    "histc": "histc",
    "bincount": "bincount.weights",
    "median": "median.dim nanmedian.dim",
    "grid_sample": "grid_sampler_2d_backward grid_sampler_3d_backward",
    "scatter_reduce": "scatter_reduce.two scatter_reduce_.two",
}
FORBIDDEN = frozenset(" ".join(THROWS.values()).split())
# tensors of the CPU go with those of a GPU as indices, as lengths, and as numbers of no dimension
INDEXING = {"index", "index_put", "index_put_", "_index_put_impl_", "_unsafe_index", "_pack_padded_sequence"}
COPYING = {"copy_", "_foreach_copy_"}
NUMBERS = {"fill", "fill_", "masked_fill", "masked_fill_", "where", "_foreach_mul", "_foreach_mul_", "_foreach_add_"}
HEADER = (Path(torch.__file__).parent / "include/ATen/autocast_mode.h").read_text()  # what autocast does on CUDA
LOWER, SINGLE, OPTIONAL = (
    {*re.findall(r"_\((\w+)", HEADER.partition(f"#define AT_FORALL_{name}(_)")[2].partition("\n\n")[0])}
    for name in ("LOWER_PRECISION_FP", "FP32", "FP32_SET_OPT_DTYPE")
)
SINGLE |= OPTIONAL | {"norm", "cross_entropy"}  # which consists of log_softmax and nll_loss
RECURRENT = {"lstm", "gru", "rnn_tanh", "rnn_relu"}  # by cuDNN in float16, whatever was asked for (AutocastRNN.cpp)
PLACES = {}  # of a storage; kept, as caches of the program are


def tensors(values):
    """Yield the tensors in the CPU's memory; others are on the meta device."""
    for value in values if isinstance(values, (list, tuple)) else [values]:
        if isinstance(value, Tensor):
            yield from [value] if value.device == CPU else []
        elif isinstance(value, (list, tuple)):
            yield from tensors(value)


def place_of(tensor):
    return PLACES.get(tensor.untyped_storage()._cdata, (None, None))[1]


def put(tensor, place):
    if len(PLACES) > 500_000:
        for key in [key for key, (storage, _) in PLACES.items() if storage.expired()]:
            del PLACES[key]
    storage = tensor.untyped_storage()
    PLACES[storage._cdata] = StorageWeakRef(storage), place


class Rules(TorchDispatchMode):
    """Notes in `refused` what CUDA has no deterministic operation for, and in `met` where two devices meet."""

    def __init__(self):
        super().__init__()
        self.around = [CPU]  # where goes what is made without a tensor
        self.refused, self.met, self.halved, self.seen = set(), set(), set(), set()

    def note(self, problems, what):
        frame = sys._getframe(1)
        while frame and "/vitlab/" not in frame.f_code.co_filename:
            frame = frame.f_back
        where = frame and f"{frame.f_code.co_filename.rpartition('/vitlab/')[2]}:{frame.f_lineno}"
        problems.add(f"{what} at {where}")

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        kwargs = kwargs or {}
        if func._can_decompose():  # in inference mode: what it consists of
            with self:
                return func.decompose(*args, **kwargs)
        with torch._C.DisableTorchFunction():
            given = list(tensors([*args, *kwargs.values()]))
            places = [place_of(tensor) or CPU for tensor in given]
            if on_gpu := CUDA in places:
                self.check(func, args, kwargs, given, places)
            made = func(*args, **kwargs)
            if on_gpu and lower_dtype() == torch.bfloat16 and any(t.dtype == torch.float16 for t in tensors(made)):
                self.note(self.halved, func._schema.name)
            without = not given or func is torch.ops.aten.lift_fresh.default
            for tensor in tensors(made):
                if place_of(tensor) is None:
                    put(tensor, CUDA if on_gpu else self.around[-1] if without else CPU)
            if func is torch.ops.aten._pack_padded_sequence.default:
                put(made[1], CPU)
            return made

    def check(self, func, args, kwargs, given, places):
        name = func._schema.name.removeprefix("aten::")
        full = f"{name}.{func._overloadname}"
        if name == "bincount" and (args[1] if len(args) > 1 else kwargs.get("weights")) is not None:
            full = "bincount.weights"
        self.seen.add(name)
        if {name, full} & FORBIDDEN:
            self.note(self.refused, full)
        strange = [tensor for tensor, place in zip(given, places, strict=True) if place == CPU]
        if not strange or name in COPYING or (name in INDEXING and places[0] == CUDA):
            return
        if any(t.ndim for t in strange) or not (torch.Tag.pointwise in func.tags or name in NUMBERS):
            self.note(self.met, f"{name} of {', '.join(map(str, places))}")


class Place(TorchFunctionMode):
    def __init__(self, rules):
        super().__init__()
        self.rules = rules

    def __torch_function__(self, func, types, args=(), kwargs=None):
        kwargs = dict(kwargs or {})
        if args and isinstance(args[0], Tensor) and args[0].device == CPU:
            place = place_of(args[0]) or CPU
            if func in ASKED:
                return ASKED[func](place)
            if func in UNREAD and place == CUDA:
                self.rules.note(self.rules.met, f"{func.__name__}() of {place}")
            if func is Tensor.pin_memory:
                return args[0]
            if func in MOVES:
                return self.move(func, place, *args, **kwargs)
        around = CUDA if any(place_of(t) == CUDA for t in tensors([*args, *kwargs.values()])) else CPU
        if (asked := kwargs.get("device")) is not None and torch.device(asked).type != "meta":
            around, kwargs["device"] = CPU if torch.device(asked) == CPU else CUDA, CPU
        generator = kwargs.get("generator")
        if generator is not None and generator.device.type != around.type:
            self.rules.note(self.rules.met, f"{func.__name__} on {around} with a generator of {generator.device}")
        if around == CUDA and (lower := lower_dtype()):
            args, kwargs = cast(func, lower, args), cast(func, lower, kwargs)
        self.rules.around.append(around)
        try:
            made = func(*args, **kwargs)
        finally:
            self.rules.around.pop()
        for tensor in tensors(made):
            if place_of(tensor) is None:
                put(tensor, around)
        if asked is not None and isinstance(made, Tensor) and made.device == CPU and place_of(made) != around:
            made = made.clone()  # torch.as_tensor(of another device)
            put(made, around)
        return made

    def move(self, func, place, tensor, *args, **kwargs):
        kwargs.pop("copy", None)
        target, dtype, layout = (CPU if func is Tensor.cpu else CUDA), None, None
        if func is Tensor.to and args and isinstance(args[0], Tensor):
            target, dtype = place_of(args[0]) or CPU, args[0].dtype
        elif func is Tensor.to:
            target, dtype, _, layout = torch._C._nn._parse_to(*args, **kwargs)
        if target is not None and target.type == "meta":
            return tensor.to("meta")
        made = tensor.to(dtype or tensor.dtype, memory_format=layout or torch.preserve_format)
        if target is not None and target.type != place.type:
            made = made.clone()
            put(made, CUDA if target.type == "cuda" else CPU)
        return made


def lower_dtype():
    """The type of CUDA's autocast where it is on, else None."""
    return torch.get_autocast_dtype("cuda") if torch.is_autocast_enabled("cuda") else None


def cast(func, lower, values):
    """Cast the tensors on the GPU among a function's arguments as autocast does."""
    name = func.__name__  # not those in place; `__rmatmul__` is matmul
    names = {name, name.removeprefix("__").removesuffix("__").removeprefix("r")}
    dtype = (
        torch.float16 if names & RECURRENT else lower if names & LOWER else torch.float32 if names & SINGLE else None
    )
    if dtype is None or isinstance(values, str):
        return values
    if isinstance(values, Tensor):
        is_cast = values.is_floating_point() and values.dtype != torch.float64 and place_of(values) == CUDA
        return values.to(dtype) if is_cast else values
    if isinstance(values, dict):
        return {key: cast(func, lower, value) for key, value in values.items()}
    return type(values)(cast(func, lower, value) for value in values) if type(values) in (list, tuple) else values


ASKED = {
    Tensor.device.__get__: lambda place: place,
    Tensor.is_cuda.__get__: lambda place: place == CUDA,
    Tensor.is_cpu.__get__: lambda place: place == CPU,
    Tensor.get_device: lambda place: 0 if place == CUDA else -1,
}
UNREAD = (Tensor.numpy, Tensor.__array__)
MOVES = (Tensor.to, Tensor.cpu, Tensor.cuda)


class Generator(torch.Generator):
    """Draws on the CPU, and says the device that it was asked for."""

    def __new__(cls, device="cpu"):
        made = super().__new__(cls)
        made.asked = torch.device(device)
        return made

    @property
    def device(self):
        return self.asked


@contextmanager
def seeming_gpu(bf16=False):
    """torch sees one GPU, with or without bf16; gives the `Rules`."""
    names = ("set_device", "synchronize", "empty_cache", "manual_seed", "manual_seed_all", "set_rng_state")
    answers = dict.fromkeys((*names, "set_rng_state_all", "get_rng_state"))
    answers |= {"is_available": True, "device_count": 1, "current_device": 0, "is_bf16_supported": bf16}
    answers |= {"get_device_name": "none", "get_device_capability": (8 if bf16 else 7, 0), "get_rng_state_all": []}
    answers |= {"get_device_properties": SimpleNamespace(L2_cache_size=2**22)}
    patches = {name: (lambda *_, _answer=answer, **__: _answer) for name, answer in answers.items()}
    rules = Rules()
    with (
        patch.multiple(torch.cuda, **patches),
        patch.object(torch, "Generator", Generator),
        patch.object(torch.accelerator, "is_available", lambda: False),  # else it looks for CUDA's graphs
        patch.object(torch.nn.RNNBase, "flatten_parameters", lambda _: None),  # by cuDNN
        rules,
        Place(rules),
    ):
        yield rules
