"""Attention of target tokens over source tokens, as shaded cells: source across, target down."""

from collections.abc import Iterator

from vitlab.analysis.capture.findings import Findings
from vitlab.config.schema import AnalysisConfig
from vitlab.reports.figures.cells import draw_cells
from vitlab.reports.figures.figure import Figure
from vitlab.reports.urls import file_stem


def figures(found: Findings, config: AnalysisConfig, title: str) -> Iterator[Figure]:
    """Of arrays "weights" (B, H, N, S), "sources" (B, S) and "targets" (B, N): the last head of each pair.

    That is the mean of several heads; of the first pair each head is drawn too.
    """
    heads = [row["head"] for row in found.rows[-found.arrays["weights"].shape[1] :]]
    for pair, (weights, sources, targets) in enumerate(
        zip(*(found.arrays[name] for name in ("weights", "sources", "targets")), strict=True), 1
    ):
        sources, targets = ([token for token in tokens if token] for tokens in (sources.tolist(), targets.tolist()))
        for head, values in list(zip(heads, weights, strict=True))[0 if pair == 1 else -1 :]:
            name = {"mean": ", mean of the heads", 1: ""}.get(head if len(heads) > 1 else 1, f", head {head}")
            values = values[: len(targets), : len(sources)].astype(float)
            chart = draw_cells(
                values.tolist(),
                targets,
                sources,
                x="source",
                y="target",
                texts=[[f"{100 * value:.0f}" if value >= 0.005 else "" for value in row] for row in values],
                scale="attention of the target token",
            )
            suffix = "" if head in ("mean", heads[-1]) else f"-head{head}"
            yield Figure(file_stem(f"{found.name}-{pair}{suffix}"), f"{title}{name}", {"": chart})
