"""Small layers of a transformer's block, with the parameters and the numbers of timm's of the same names.

timm imports all of its models and torchvision for each of them: 2 s, for which nobody waits who only counts a model.

Shapes: B batch, D model width, H hidden width.
"""

import torch
from torch import Tensor, nn


class Mlp(nn.Module):
    """(..., D) -> H -> (..., D), dropout after both layers."""

    def __init__(
        self, width: int, hidden: int, *, act: type[nn.Module] = nn.GELU, bias: bool = True, dropout: float = 0.0
    ):
        super().__init__()
        self.fc1 = nn.Linear(width, hidden, bias=bias)
        self.act = act()
        self.drop1 = nn.Dropout(dropout)
        self.fc2 = nn.Linear(hidden, width, bias=bias)
        self.drop2 = nn.Dropout(dropout)

    def forward(self, x: Tensor) -> Tensor:
        return self.drop2(self.fc2(self.drop1(self.act(self.fc1(x)))))


class GatedMlp(nn.Module):
    """The same with a gate as a third layer (Shazeer, 2020, arXiv 2002.05202); `act` is the gate's."""

    def __init__(
        self, width: int, hidden: int, *, act: type[nn.Module] = nn.SiLU, bias: bool = True, dropout: float = 0.0
    ):
        super().__init__()
        self.fc1_g = nn.Linear(width, hidden, bias=bias)
        self.fc1_x = nn.Linear(width, hidden, bias=bias)
        self.act = act()
        self.drop1 = nn.Dropout(dropout)
        self.fc2 = nn.Linear(hidden, width, bias=bias)
        self.drop2 = nn.Dropout(dropout)

    def forward(self, x: Tensor) -> Tensor:
        return self.drop2(self.fc2(self.drop1(self.act(self.fc1_g(x)) * self.fc1_x(x))))


class LayerScale(nn.Module):
    """A learned factor for each feature (Touvron et al., 2021, arXiv 2103.17239): (..., D) -> (..., D)."""

    def __init__(self, width: int, first: float):
        super().__init__()
        self.gamma = nn.Parameter(torch.full((width,), first))

    def forward(self, x: Tensor) -> Tensor:
        return x * self.gamma


class DropPath(nn.Module):
    """Leaves a share of a batch's examples out while training (Huang et al., 2016): (B, ...) -> (B, ...).

    The others are scaled so that the mean stays.
    """

    def __init__(self, drop_prob: float):
        super().__init__()
        self.drop_prob = drop_prob

    def forward(self, x: Tensor) -> Tensor:
        if not self.training:
            return x
        kept = x.new_empty(x.shape[0], *(1 for _ in x.shape[1:])).bernoulli_(1 - self.drop_prob)
        return x * (kept.div_(1 - self.drop_prob) if self.drop_prob < 1 else kept)


class QuickGELU(nn.Module):
    """x * sigmoid(1.702 x), as CLIP has it (Radford et al., 2021)."""

    def forward(self, x: Tensor) -> Tensor:
        return x * torch.sigmoid(1.702 * x)
