"""Checks of a recipe, and of a recipe with the model and the batch that it is for. Each problem is one line."""

from collections.abc import Iterator

from omegaconf import DictConfig, ListConfig

ENDING = ("cosine", "linear")  # schedules that go down to `final_lr`
LEAST_ALPHA = 1e-6  # of mixup and CutMix
COOLED = ("rsqrt", "constant")  # schedules that have no end of their own


def find_problems(config: DictConfig) -> list[str]:
    node = config.recipe
    schedule = check_schedule(node, config.get("model"))
    return [*check_optimizer(node), *schedule, *check_average(node), *check_batch(node), *check_budget(node.budget)]


def check_optimizer(node: DictConfig) -> Iterator[str]:
    """Keys that the optimizer does not accept together."""
    if len(node.betas) != 2:
        yield f"recipe.betas={node.betas}: give two, for example recipe.betas=[0.9,0.999]"
    if node.optimizer in ("sgd", "muon") and node.nesterov and node.momentum == 0:
        yield "recipe.nesterov=True: needs a recipe.momentum above 0"
    if node.freeze and node.optimizer == "muon":
        yield "recipe.freeze=body: trains the head only, which recipe.optimizer=muon cannot; give adamw or sgd"
    if node.freeze and node.layer_decay is not None:
        yield f"recipe.layer_decay={node.layer_decay}: recipe.freeze=body trains the head only; give null"


def check_schedule(node: DictConfig, model: DictConfig | None) -> Iterator[str]:
    """Keys of a schedule that are missing, contradict each other, or have no effect."""
    name = node.schedule
    if name == "noam":
        if isinstance(model, DictConfig) and "width" not in model:
            yield (
                f"recipe.schedule=noam: scales the rate with the model's width, but model={model.name} has no "
                "width; choices for it: cosine, linear, constant, rsqrt, multistep"
            )
        if node.warmup == 0:
            yield "recipe.warmup=0: recipe.schedule=noam divides by it; give recipe.warmup=4000"
    if name == "rsqrt" and node.timescale is None and node.warmup == 0:
        yield "recipe.warmup=0: recipe.schedule=rsqrt takes its timescale from it; give recipe.timescale=10000"
    if name != "rsqrt" and node.timescale is not None:
        yield f"recipe.timescale={node.timescale}: only recipe.schedule=rsqrt uses it, not {name}; give null"
    if name not in ENDING and node.final_lr:
        yield f"recipe.final_lr={node.final_lr}: only recipe.schedule={' or '.join(ENDING)} uses it, not {name}; give 0"
    if name not in COOLED and node.cooldown:
        yield f"recipe.cooldown={node.cooldown}: only recipe.schedule={' or '.join(COOLED)} uses it, not {name}; give 0"
    yield from check_milestones(node.milestones, name)


def check_milestones(values: ListConfig, name: str) -> Iterator[str]:
    example = "give for example recipe.milestones=[0.3,0.6,0.9]"
    if name == "multistep" and not values:
        yield f"recipe.milestones=[]: recipe.schedule=multistep needs at least one; {example}"
    elif name != "multistep" and values:
        yield f"recipe.milestones={values}: only recipe.schedule=multistep uses it, not {name}; give []"
    elif sorted(set(values)) != list(values):
        yield f"recipe.milestones={values}: must increase; {example}"


def check_average(node: DictConfig) -> Iterator[str]:
    """Averages of the last checkpoints that are not the only average, or of a run whose end is not known."""
    if node.average is not None and node.ema is not None:
        yield f"recipe.average={node.average}: recipe.ema={node.ema} is an average too; give one of them"
    if node.average is not None and node.patience is not None:
        yield (
            f"recipe.average={node.average}: is of the last steps, and with recipe.patience={node.patience} these are "
            "not known; give recipe.ema, or recipe.patience=null"
        )


def check_batch(node: DictConfig) -> Iterator[str]:
    """Batches that are too small for a recipe."""
    if node.repeats > node.batch_size:
        yield f"recipe.repeats={node.repeats}: must be at most recipe.batch_size={node.batch_size}"
    for key in ("mixup", "cutmix"):
        if node[key] and node.batch_size == 1:
            yield f"recipe.{key}={node[key]}: mixes pairs of images, but recipe.batch_size=1; give 0"
        if 0 < node[key] < LEAST_ALPHA:
            yield f"recipe.{key}={node[key]}: too small for a Beta distribution; give 0, or at least {LEAST_ALPHA:g}"


def check_budget(node: DictConfig) -> Iterator[str]:
    given = {key: value for key, value in node.items() if value is not None}
    if len(given) > 1:
        shown = " and ".join(f"recipe.budget.{key}={value}" for key, value in given.items())
        yield f"{shown}: give at most one; to train shorter or longer, give budget.{next(iter(given))}=N"
