"""How far apart a model's position embeddings are, as heat maps."""

from collections.abc import Sequence

from vitlab.reports.figures.cells import draw_cells
from vitlab.reports.figures.figure import Figure

Matrix = Sequence[Sequence[float]]


def plot_distances(distances: Matrix, subject: str) -> Figure:
    """Euclidean distances (N, N) of `vitlab.analysis.position_similarity.position_distances`."""
    largest = max(map(max, distances))
    return plot_matrix("position_distance", "Distance", distances, "Euclidean distance", (0.0, largest or 1.0), subject)


def plot_similarities(similarities: Matrix, subject: str) -> Figure:
    """Cosine similarities (N, N) of `vitlab.analysis.position_similarity.position_similarities`."""
    return plot_matrix("position_similarity", "Similarity", similarities, "cosine similarity", (-1.0, 1.0), subject)


def plot_matrix(name: str, what: str, values: Matrix, scale: str, ends: tuple[float, float], subject: str) -> Figure:
    places = [str(place) for place in range(len(values))]
    chart = draw_cells(values, places, places, x="position", y="position", scale=scale, ends=ends)
    return Figure(name, f"{what} of position embeddings, {subject}", {"": chart})
