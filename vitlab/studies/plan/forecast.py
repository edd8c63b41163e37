"""What a study costs on a machine that is described: how each run fits, how long it takes, when all are done.

Nothing is measured. Operations and memory are counted; the share of a device's peak that training reaches is assumed.
Devices of a run share its batch; that they wait for each other is not counted, apart from that share.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property

from torch import nn

from vitlab.config import resolved
from vitlab.models.counting import count, memory
from vitlab.studies.grid import Spec
from vitlab.studies.plan.machine import Machine, pack
from vitlab.studies.plan.study import Plan, describe_costs
from vitlab.training import budgets, settings
from vitlab.training.devices.checks import list_unsharded
from vitlab.training.optimization.optimizers import build_optimizer
from vitlab.training.prepare import PreparedModel

# Shares of the peak that others reached: transformers 46% (PaLM: Chowdhery et al., 2022), 38 to 43% (Llama 3, 2024);
# ResNet-50 19% of an A100 (2,470 images/s: NVIDIA's DeepLearningExamples), for convolutions wait for the memory.
UTILISATION = {"transformer": 0.4, "convolutions": 0.2}
USABLE = 0.9  # of a device's memory: the rest is for CUDA, its workspaces and fragments
FLOAT = 4  # bytes; weights, gradients and states are float32 under autocast too
AGAIN = 4 / 3  # operations of a step that computes its blocks' activations again
ENOUGH = 8  # examples at a time: with fewer a GPU waits, and activations are better computed again
FEWEST = 32  # examples that a device gets in a step, where the plan chooses how many devices share one
BUSY = 0.9  # of the devices' time: then no more devices for the longest runs are sought


@dataclass(frozen=True)
class Layout:
    """How a run stands on its devices: the largest part of a batch that fits, and in how many parts a batch comes."""

    strategy: str  # "one device", "ddp", "fsdp"
    checkpointed: bool
    devices: int
    accumulate: int
    largest: int  # examples on a device at a time, at most
    bytes: float  # of a device, with the part of the batch that it computes at a time

    def describe(self) -> str:
        """`ddp x 8 / 2 again`: on 8 devices, a batch in 2 parts, its blocks computed again."""
        words = (
            [self.strategy]
            + [f"x {self.devices}"] * (self.devices > 1)
            + [f"/ {self.accumulate}"] * (self.accumulate > 1)
        )
        return " ".join([*words, *["again"] * self.checkpointed])


@dataclass(frozen=True)
class Needs:
    """The memory of a variant in bytes, and what decides how it may be divided."""

    weights: int
    gradients: int
    states: int  # of the optimizer, and averages of the weights
    block: int  # the weights of the largest block, which FSDP has as a whole
    activations: memory.Activations
    batchnorm: bool  # whose statistics are of a whole batch on one device, or of all devices
    sharded: bool  # whether FSDP can divide it
    convolutions: bool

    def fixed(self, strategy: str, devices: int) -> float:
        """Bytes on a device whatever the batch."""
        held = self.weights + self.gradients + self.states
        if strategy == "fsdp":  # the next block comes while one computes
            return held / devices + 2 * self.block + self.activations.fixed
        buckets = self.gradients if strategy == "ddp" else 0
        return held + buckets + self.activations.fixed

    def fit(self, batch: int, devices: int, room: float) -> Layout | None:
        """The cheapest way that a batch fits on so many devices of `room` bytes; none where no way does."""
        plain = "one device" if devices == 1 else "ddp"
        ways = [(plain, False), *([] if self.batchnorm else [(plain, True)])]
        ways += [("fsdp", False), ("fsdp", True)] if devices > 1 and self.sharded else []
        share, fits = batch // devices, []
        for strategy, checkpointed in ways:
            each = self.activations.checkpointed if checkpointed else self.activations.per_example
            largest = self.largest(strategy, checkpointed, devices, room)
            most = 1 if self.batchnorm else share
            parts = next((k for k in range(1, most + 1) if share % k == 0 and share // k <= largest), None)
            if parts is not None:
                used = self.fixed(strategy, devices) + share // parts * each
                fits.append(Layout(strategy, checkpointed, devices, parts, largest, used))
        enough = [fit for fit in fits if share // fit.accumulate >= min(share, ENOUGH)]
        return next(iter(enough or fits), None)

    def largest(self, strategy: str, checkpointed: bool, devices: int, room: float) -> int:
        """The examples that a device of `room` bytes computes at a time, at most."""
        each = self.activations.checkpointed if checkpointed else self.activations.per_example
        return max(0, int((room - self.fixed(strategy, devices)) // each))


@dataclass(frozen=True)
class Forecast:
    """A plan on a machine. Every run of a variant stands alike; the runs are begun longest first."""

    plan: Plan
    machine: Machine
    needs: Mapping[str, Needs]
    fits: Mapping[str, Layout | None]  # none: it does not fit on any number of these devices

    def utilisation(self, variant: str) -> float:
        kind = "convolutions" if self.needs[variant].convolutions else "transformer"
        return self.machine.utilisation or UTILISATION[kind]

    def rate(self, variant: str) -> float:
        """Examples a second that one device trains on."""
        flops = self.plan.by_variant[variant].flops_per_example * (AGAIN if self.fits[variant].checkpointed else 1)
        return min(self.machine.read, self.machine.flops * self.utilisation(variant) / flops)

    def seconds(self, spec: Spec) -> float | None:
        """Of a run on its devices: its steps, its evaluations, its test; none where it does not fit."""
        variant, task = spec.config["variant"], self.plan.task
        if self.fits[variant] is None:
            return None
        model, steps = self.plan.by_variant[variant], self.plan.steps(spec)
        times = self.plan.trainings(model)
        looked_at = times * self.plan.evaluations(spec) * len(task.validation) + len(task.test)
        examples = times * steps * model.config.recipe.batch_size + looked_at / 3  # forward alone
        return examples / self.rate(variant) / self.fits[variant].devices

    @cached_property
    def runs(self) -> list[tuple[float, int, str]]:
        """Seconds, devices and variant of each run that fits, the longest first."""
        runs = [(self.seconds(spec), spec.config["variant"]) for spec in self.plan.specs]
        return sorted(((s, self.fits[name].devices, name) for s, name in runs if s is not None), reverse=True)

    @cached_property
    def wall(self) -> float:
        """Seconds until all runs are done."""
        return pack([(seconds, devices) for seconds, devices, _ in self.runs], self.machine.devices)

    @property
    def device_seconds(self) -> float:
        return sum(seconds * devices for seconds, devices, _ in self.runs)

    @property
    def busy(self) -> float:
        """The share of the devices' time that runs take."""
        return self.device_seconds / (self.wall * self.machine.devices) if self.runs else 0.0

    @property
    def checkpoint_bytes(self) -> int:
        """Of last.ckpt of every run and trial, and best.ckpt where the recipe keeps it."""
        total = 0
        for spec in self.plan.specs:
            needs, recipe = (
                self.needs[spec.config["variant"]],
                self.plan.by_variant[spec.config["variant"]].config.recipe,
            )
            best = needs.weights if recipe.keep == "best" else 0
            total += (needs.weights + needs.states + best) * (1 + self.plan.trials * bool(self.plan.config.tune))
        return total


def forecast(plan: Plan, machine: Machine) -> Forecast:
    """How the runs of a study stand on a machine, each on the fewest devices that it fits on.

    While devices wait for a few long runs, the longest take twice as many, as long as a device has FEWEST examples.
    """
    counted: dict[str, Needs] = {}
    for model in plan.by_variant.values():
        costs = describe_costs(resolved(model.config))
        counted[costs] = counted.get(costs) or count_needs(model, plan)
    needs = {name: counted[describe_costs(resolved(model.config))] for name, model in plan.by_variant.items()}
    ways = {name: list(list_fits(model, needs[name], machine)) for name, model in plan.by_variant.items()}
    best = current = Forecast(plan, machine, needs, {name: fits[0] if fits else None for name, fits in ways.items()})
    while best.runs and best.busy < BUSY:
        wider = find_wider(current, ways)
        if wider is None:
            break
        current = Forecast(plan, machine, needs, wider)
        best = current if current.wall < best.wall else best
    return best


def find_wider(found: Forecast, ways: Mapping[str, list[Layout]]) -> dict[str, Layout | None] | None:
    """The fits with more devices for the longest run's variant, or for the next that can have some."""
    for name in dict.fromkeys(name for *_, name in found.runs):
        for fit in ways[name]:
            if fit.devices > found.fits[name].devices:
                return {**found.fits, name: fit}
    return None


def list_fits(model: PreparedModel, needs: Needs, machine: Machine) -> Iterator[Layout]:
    """How a run may stand on 1, 2, 4, ... devices, or on as many as trainer.devices and trainer.nodes say."""
    batch, trainer = model.config.recipe.batch_size, model.config.trainer
    given = trainer.devices * trainer.nodes
    widths = [2**power for power in range(machine.devices.bit_length())] if given == 1 else [given]
    fewest = min(FEWEST, batch)
    fits = [
        (width, needs.fit(batch, width, USABLE * machine.memory))
        for width in widths
        if width <= machine.devices and batch % width == 0
    ]
    good = [fit for width, fit in fits if fit and (width == given or batch // width >= fewest)]
    yield from good or [fit for _, fit in fits if fit][:1]


def count_needs(model: PreparedModel, plan: Plan) -> Needs:
    config = model.config
    task = model.task
    network = budgets.make_meta_model(config.model, task, config.recipe.freeze is not None)
    batchnorm = any(isinstance(module, nn.modules.batchnorm._BatchNorm) for module in network.modules())
    weights = FLOAT * count.parameters(network)
    half = model.settings.precision in settings.AUTOCAST_DTYPES
    averaged = config.recipe.ema is not None or config.recipe.average is not None
    return Needs(
        weights,
        gradients=sum(FLOAT * parameter.numel() for parameter in network.parameters() if parameter.requires_grad),
        states=memory.count_state(build_optimizer(network, config.recipe)) + averaged * weights,
        block=max((FLOAT * count.parameters(block) for block in memory.list_blocks(network)), default=weights),
        activations=memory.count_activations(network, task.loss, task.example(), half=half),
        batchnorm=batchnorm,
        sharded=not batchnorm and not list_unsharded(config),
        convolutions=settings.has_convolutions(network),
    )
