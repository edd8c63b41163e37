"""Results that papers published for a study's models on its data set, from published.yaml."""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path, PurePath
from typing import Any

import yaml

from vitlab.files import read_json
from vitlab.reports.results.study_results import StudyResults
from vitlab.studies.store import StudyFiles

CAUTION = (
    "Published results are for the whole training set under the named conditions. Runs under other conditions (from "
    "scratch, at another resolution, with fewer steps) are not comparable."
)


@dataclass(frozen=True)
class Published:
    """One figure of a model; `value` is as the source has it, `source` the paper and the table."""

    model: str
    value: str
    source: str
    conditions: str


@dataclass(frozen=True)
class PublishedFigures:
    """What is published for a study, and the size of the whole training set, where the study's files tell it."""

    figures: tuple[Published, ...] = ()
    size: int | None = None

    def of(self, model: str) -> list[int]:
        """The places, from 1, of a model's figures."""
        return [place for place, figure in enumerate(self.figures, start=1) if figure.model == model]


def find_published(results: StudyResults) -> PublishedFigures:
    """What is published of the models that have a run, on the study's data set, in the study's metric."""
    data = results.config.get("data")
    name = recognise_data(data) if isinstance(data, Mapping) else None
    if name is None:
        return PublishedFigures()
    metric, models = results.metric, {row["model"] for row in results.rows}
    figures = [
        Published(figure["model"], figure["value"], figure["source"], figure["conditions"])
        for figure in read_published()["figures"]
        if figure["data"] == name and figure["metric"] == metric.key and figure["model"] in models
    ]
    return PublishedFigures(tuple(figures), read_total(results.files))


@cache
def read_published() -> dict[str, Any]:
    """published.yaml."""
    return yaml.safe_load((Path(__file__).parent / "published.yaml").read_text())


def recognise_data(config: Mapping[str, Any]) -> str | None:
    """The published name of a study's data set; None for one that nothing is known of."""
    for name, places in read_published()["data"].items():
        if any(all(ends_in(config.get(key), value) for key, value in place.items()) for place in places):
            return name
    return None


def ends_in(value: Any, wanted: str) -> bool:
    """Whether a value's last parts, as of a path, are those wanted, in any case."""
    parts = PurePath(wanted.lower()).parts
    return isinstance(value, str) and PurePath(value.lower()).parts[-len(parts) :] == parts


def read_total(study: StudyFiles) -> int | None:
    """How large the whole training set is, by a manifest of its subsets. Raises UserError for one it cannot read."""
    for path in sorted(study.subsets.glob("*.json")):
        totals = [value for key, value in read_json(path).items() if key.startswith("train_")]
        if totals:
            return totals[0]
    return None
