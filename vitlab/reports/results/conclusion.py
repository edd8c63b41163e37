"""What a study has found, as `vitlab scale` prints it. Imports no torch, and neither scipy nor altair."""

from dataclasses import dataclass
from pathlib import Path

from rich.console import Console

from vitlab.config import identity, resolved
from vitlab.config.schema import StudyConfig
from vitlab.data.cache.content_hash import contents
from vitlab.data.opening import open_data
from vitlab.reports.results.provenance import advise_tuning
from vitlab.reports.results.size_table import SizeTable, make_size_table
from vitlab.reports.results.study_results import StudyResults
from vitlab.reports.results.summary import headline
from vitlab.reports.tracking.uploads import list_uploads
from vitlab.studies.grid import compose_models, name_run
from vitlab.studies.store import StudyFiles, describe_asked


@dataclass(frozen=True)
class Conclusion:
    """The table of sizes and models, empty where no run has finished, sentences, and where the files are."""

    table: SizeTable
    says: list[str]
    places: list[str]


def conclude(results: StudyResults, report: Path) -> Conclusion:
    files = results.files
    table = SizeTable([], [], "")
    if results.rows:
        table = make_size_table(results.rows, results.outcomes, results.margin)
    places = [f"report   {report}", f"results  {files.results_path}"]
    if any(upload.state == "waiting" for upload in list_uploads(results)):
        places.append(f"W&B      vitlab sync {files.folder}")
    urls = [run.wandb["url"] for run in results.runs.values() if run.wandb.get("url")]
    places += sorted({f"W&B      {url.partition('/runs/')[0]}" for url in urls})
    says = [
        *filter(None, headline(results)),
        *results.fits.describe_next_runs(),
        *filter(None, [advise_tuning(results)]),
    ]
    return Conclusion(table, says, places)


def is_finished(files: StudyFiles, config: StudyConfig, console: Console) -> bool:
    """Whether the last start asked for the same, on the same data, and has all results, and a report of them."""
    start = files.last_start()
    if start is None or start.asked != describe_asked(resolved(config)) or not files.report_path.is_file():
        return False
    data, models = contents(config.data, open_data(config.data, console)), compose_models(config)
    drawn = files.report_path.stat().st_mtime
    for variant, size, seed in start.cells:
        run = files.run(name_run(variant, size, seed))
        result, _ = run.read_result()
        if result is None or not run.config_path.is_file() or result["id"] != identity(run.config(), data):
            return False
        paths = (run.result_path, run.analysis_folder)
        if any(path.exists() and path.stat().st_mtime > drawn for path in paths):
            return False
        if any(run.find_lacking(resolved(models[variant])).values()):
            return False
    return True
