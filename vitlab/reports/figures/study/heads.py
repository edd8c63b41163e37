"""What each analysis of heads measures of a model at each training-set size, by layer and while it trains."""

from collections.abc import Iterator

from vitlab.config import load, names
from vitlab.formatting import file_stem, folder_link, plural
from vitlab.reports.figures.figure import Figure
from vitlab.reports.figures.heads import Measured, draw_heads, draw_layers
from vitlab.reports.figures.theme import looks
from vitlab.studies.results import Results

PLACE = 3
TRAINED = "A filled point is a head of the trained model, a ring a head of the untrained one"
WHILE_TRAINING = "Each line is the mean over the heads of a layer while the model trains"


def draw(results: Results) -> Iterator[Figure]:
    style = looks(results.families)
    for name in sorted({name for run in results.run_files.values() for name in run.analyses}):
        config = load("analysis", name) if name in names("analysis") else None
        title = config.title if config else name.replace("_", " ")
        title = f"{title[:1].upper()}{title[1:]}"
        note = f": {config.note}" if config and config.note else "."
        for number, model in enumerate(style):
            measured = find_analyses(results, model, name)
            if not measured:
                continue
            stem = file_stem(f"{name}-{model}") + ("" if is_only(model, style) else f"-{number}")
            colour = style[model].colour
            yield draw_heads(stem, f"{title} by layer, {model}", measured, colour, f"{TRAINED}{note}")
            if any(len(one.steps) > 2 for one in measured):
                heading = f"{title} while training, {model}"
                yield draw_layers(f"{stem}-by-step", heading, measured, f"{WHILE_TRAINING}{note}")


def is_only(model: str, models: dict[str, object]) -> bool:
    """Whether no other model's name differs only in what a file name cannot hold."""
    return sum(file_stem(other) == file_stem(model) for other in models) == 1


def find_analyses(results: Results, model: str, name: str) -> list[Measured]:
    """An analysis of a model at each training-set size, of the first seed that has it."""
    chosen: dict[int, Measured] = {}
    for row in results.rows:
        analysis = results.run_files[row["run"]].analysis(name) if row["model"] == model else None
        if analysis is not None:
            title = plural(row["train_size"], results.metric.sized_by)
            chosen.setdefault(row["train_size"], Measured(analysis, title, folder_link(row["run"])))
    return [chosen[size] for size in sorted(chosen)]
