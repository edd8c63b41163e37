"""The end of `vitlab scale`: the results outlive a report that cannot be drawn."""

from tests.unit.reports.written_study import make_study
from vitlab.commands.scale import finish
from vitlab.reports.pages import study as page


def test_a_report_that_fails_costs_no_result_and_is_said_in_one_line(tmp_path, monkeypatch, capsys):
    files = make_study(tmp_path / "quick")
    before = files.results_path.read_bytes()

    def fail(results):
        raise KeyError("planted")

    monkeypatch.setattr(page, "write_report", fail)
    assert finish(files, {}) == 1
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith("vitlab: the report failed: ")
    assert f"'vitlab report {files.folder}' writes the report again" in line
    assert "planted" in (files.folder / "report.log").read_text()
    assert files.results_path.read_bytes() == before

    monkeypatch.setattr(page, "write_report", lambda results: files.report_path)
    assert finish(files, {}) == 0
    assert not (files.folder / "report.log").exists()
