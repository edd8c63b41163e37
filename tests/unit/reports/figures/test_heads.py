"""What an analysis measures of heads: points by layer, with their references."""

import pytest

from tests.unit.reports.figures.charts import read_column, read_encoding
from tests.unit.reports.written_study import SIZES, make_study
from vitlab.reports.figures import save_figure
from vitlab.reports.figures.curves import Measured, draw_heads, draw_measured
from vitlab.studies.results import load_results

REFERENCES = {"uniform attention": 20.0, "3 x 3 neighborhood": 5.0}


def measure(values):
    rows = [{"step": 0, "layer": layer, "head": 1, "value": value} for layer, value in enumerate(values, start=1)]
    analysis = {"name": "attention_distance", "unit": "pixels", "rows": rows, "references": REFERENCES}
    return Measured(analysis, "run", "a/")


def test_a_panel_per_size_shows_the_trained_and_the_untrained_model(tmp_path):
    study = make_study(tmp_path / "quick")
    (figure,) = draw_measured(load_results(study.folder))
    panels = {layer: read_column(figure, "panel", layer) for layer in ("untrained", "trained")}
    assert [*dict.fromkeys(panels["trained"])] == [f"{size:,} examples" for size in SIZES]
    assert panels["untrained"].count("500 examples") == panels["trained"].count("500 examples") == 16
    assert figure.files[1] == ("2,000 examples", "vit_nano-n2000-s0/analysis/attention_distance.json")
    (study.run("vit_nano-n2000-s0").analysis_folder / "attention_distance.json").unlink()
    (figure,) = draw_measured(load_results(study.folder))
    assert read_column(figure, "link", "trained", panel="2,000 examples")[0] == "vit_nano-n2000-s1/", (
        "the first seed that has it"
    )


@pytest.mark.parametrize("values", [[19.0, 19.6], [4.0, 21.0]])
def test_heads_are_shares_of_uniform_attention_on_an_axis_with_every_reference(values, tmp_path):
    figure = draw_heads("f", "title", [measure(values)], "vit")
    assert read_column(figure, "y", "trained") == pytest.approx([value / 20 for value in values])
    assert [read_encoding(figure, name, "y")["datum"] for name in REFERENCES] == [1.0, 0.25]
    text = save_figure(figure, tmp_path)[0].read_text()
    assert "100%: uniform attention, 20.0 pixels." in figure.caption
    assert "3 x 3 neighborhood, 5.00 pixels" in text
    assert "too coarse" not in figure.caption
