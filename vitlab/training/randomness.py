"""Where the random numbers of a run come from. Each use has a stream of its own, so that no use moves another's.

- first weights, and what a head adds to loaded ones: torch's generator, seeded with the run's seed
- training subset: `vitlab.data.subset`, seeded with `subset_seed`
- order of the items: `vitlab.data.loader.StepBatches`, seeded with the run's seed and the epoch
- dropout and augmentation of a step: `stream` here, so that a resumed run repeats the step bit for bit
"""

from typing import Literal

SEED_STRIDE = 1_000_003  # runs of different seeds share no step's seed before their millionth step
PART_STRIDE = 2_000_000_011  # likewise parts of a batch; a CPU's generator takes 32 bits of a seed


def stream(seed: int, step: int, use: Literal["dropout", "augmentation"], part: int = 0) -> int:
    """The seed of a use at a step, for the `part`-th part of the batch; stochastic depth draws as dropout."""
    number = seed * SEED_STRIDE + step + part * PART_STRIDE
    return ~number if use == "augmentation" else number
