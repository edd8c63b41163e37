"""`vitlab analyze`: analyses of a finished run's model, or of any model of timm."""

import sys
from collections.abc import Mapping, Sequence, Set
from functools import partial
from pathlib import Path
from typing import Any

from omegaconf import DictConfig
from rich.console import Console
from rich.markup import escape
from torch import nn

from vitlab import analysis, tasks
from vitlab.commands.subject import subject_of
from vitlab.commands.token_views import framed, has_views, write_views
from vitlab.commands.training import examine
from vitlab.config import UserError, load, names
from vitlab.data.opening import progress_bar
from vitlab.reports.figures.analyses import drawn
from vitlab.reports.figures.backends import matplotlib_backend
from vitlab.training.files import write_findings


def analyze(
    source: str,
    chosen: Sequence[str],
    config: DictConfig,
    changed: Set[str],
    folder: Path | None,
    texts: Sequence[Sequence[str]] = (),
    changes: Mapping[str, DictConfig] | None = None,
) -> int:
    """Write the numbers and pictures of analyses, print where; the exit code. Raises UserError.

    `chosen` are names of analyses, by default all that apply to the model; `changed` the keys that the user gave;
    `texts` of one or two sentences each are what the page of a text model's attention shows; `changes` are analyses
    by name with options of the user's.
    """
    subject = subject_of(source, config, changed)
    folder = folder or subject.folder
    task = tasks.build(config.task, recipe=config.recipe, data=subject.data, data_config=config.data)
    of_text = config.data.modality == "text"
    if texts and not of_text:
        raise UserError(f"--text '{texts[0][0]}': {source} is a model of images")
    shown = [framed(subject.model, subject.data.tokenizer, parts) for parts in texts]
    heads: list[dict[str, Any]] = []
    asked = applicable(subject.model, chosen, or_none=of_text)
    console = Console(stderr=True)
    for number, name in enumerate(asked, start=1):
        options = (changes or {}).get(name) or load("analysis", name)
        try:
            with progress_bar(console) as progress:
                told = partial(progress, f"{escape(options.title)}, {number} of {len(asked)}")
                told(0, None)  # some have no more to tell
                labelled = not subject.strange
                found = examine(subject.model, task, options, subject.step, labelled=labelled, progress=told)
                paths = write_findings(folder, name, found.unit, found.rows, found.arrays)
                for figure in drawn(found, options, subject.name):
                    paths += matplotlib_backend.save(figure, folder)
        except UserError as error:
            if chosen:
                raise
            print(f"{name}: {error}", file=sys.stderr)
            continue
        heads = found.rows if name == "head_patterns" else heads
        for path in paths:
            print(path)
    if of_text:
        if not has_views(subject.model):
            raise UserError(
                f"{source}: a {type(subject.model.text).__name__} has no attention and no positions to draw"
            )
        for path in write_views(subject.model, task, subject.data.tokenizer, shown, heads, subject.name, folder):
            print(path)
    return 0


def applicable(model: nn.Module, chosen: Sequence[str], or_none: bool = False) -> list[str]:
    """The chosen analyses, by default all that apply.

    Raises UserError for a model that one does not apply to, and but for `or_none` where none does.
    """
    refused = {name: analysis.refusal(name, model) for name in chosen or names("analysis")}
    found = [name for name, reason in refused.items() if reason is None]
    if chosen and len(found) < len(refused):
        raise UserError(reason for reason in refused.values() if reason)
    if not found and not or_none:
        raise UserError(f"no analysis applies to {type(model).__name__}; choices: {', '.join(names('analysis'))}")
    return found
