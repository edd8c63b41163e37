"""`vitlab scale`: a study from its grid to its report."""

import math
import sys
import time
import traceback
from collections.abc import Iterable, Mapping, Sequence
from contextlib import AbstractContextManager, redirect_stdout, suppress
from dataclasses import replace
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rich.markup import escape
from rich.table import Column, Table

from vitlab.commands.arguments import (
    CommandParser,
    parse_jobs,
    positive_integer,
    positive_number,
    status_line,
    typed,
)
from vitlab.commands.executors import check_executor, find_start, start_server
from vitlab.config import UserError, collecting, raise_all, resolved
from vitlab.config.identity import subset_seed
from vitlab.config.schema import StudyConfig
from vitlab.console import UNLIMITED, Console, tabulate
from vitlab.data.opening import hash_data, open_data, progress_bar
from vitlab.data.split import NESTED, long_tail, size_problems, write_manifest
from vitlab.files import read_json, write_json
from vitlab.formatting import plural
from vitlab.statistics.fit import FEWEST_AVERAGED
from vitlab.studies.claims import Held, hold, read_claim
from vitlab.studies.grid import TRIAL, compose_models, compose_study, make_spec, name_run, name_trial
from vitlab.studies.rounds import Question, Spending, Target, plan_round
from vitlab.studies.status import Display, StatusReader
from vitlab.studies.store import RunKey, StudyFiles, collect, list_missing
from vitlab.training.files import refuse_changes, source_of, source_problems

if TYPE_CHECKING:
    from vitlab.reports.words import SizeTable
    from vitlab.studies.plan import Plan
    from vitlab.studies.results import Results

LOOK = (0.2, 30.0)  # seconds between two looks at a study's folder, the fewest and the most
WRITE = (15.0, 600.0)  # seconds between two writings of its report
LOG = "report.log"  # below the study's folder: what went wrong in its report
SHARE = 0.05  # of the process's time that looks may take, and writings as much, within these limits

DESCRIPTION = """Train models on nested subsets of a data set and compare them.

STUDY is a name under configs/study/ (default: arrow; with data=... quick) or the path of a YAML file. key=value changes
one of its fields:
  vitlab scale
  vitlab scale quick data=digits sizes=[100,400] seeds=[0,1] budget.steps=60 --out runs/small
  vitlab scale data=imagefolder data.root=photos
Run the same command again to continue where it stopped."""


SECONDS = {"s": 1, "m": 60, "h": 3600, "d": 86400}
parse_time = typed(
    lambda text: float(text[:-1]) * SECONDS.get(text[-1:], 0.0),
    "a time such as 90s, 20m or 2h",
    lambda seconds: 0 < seconds < math.inf,
)


def main(words: Sequence[str]) -> int:
    parser = CommandParser("scale", DESCRIPTION)
    add = parser.add_argument
    add("words", nargs="*", metavar="STUDY | key=value")
    parser.add_out("the study's folder (default: runs/STUDY)")
    about = "runs at a time; auto (default): what the cores have room for, one a GPU, on a cluster what it has room for"
    add("--jobs", type=parse_jobs, metavar="N", help=about)
    add("--executor", metavar="NAME", help="where runs train: local (default), ray, slurm or your own")
    add("--detach", action="store_true", help="with SLURM: submit the jobs, and do not wait for them")
    about = "add seeds where the 95%% interval of a mean reaches further than this to either side"
    add("--until", type=positive_number, metavar="POINTS", help=about)
    add("--max-runs", type=positive_integer, metavar="N", help="of the study, with --until")
    about = "take so long, or less, with a seed after another until a question is decided; again with a time: continue"
    add("--spend", type=parse_time, metavar="TIME", help=about)
    about = "the question: crossover (default) or leader@N, N a training-set size"
    add("--find", metavar="QUESTION", help=about)
    add("--dry-run", action="store_true", help="only print each run, its parameters, FLOPs and time")
    args = parser.parse_intermixed_args(words)
    # the shell cuts models=[a, b] into two words; the second is not a study
    studies = [word for word in args.words if "=" not in word and not word.endswith(("]", ","))]
    if len(studies) > 1:
        raise UserError(f"'{studies[1]}' is not key=value, and the study is '{studies[0]}' already")
    overrides = [word for word in args.words if word not in studies]
    overrides += [f"executor={args.executor}"] if args.executor else []
    overrides += [f"until={args.until}"] if args.until else []
    # arrow's models are made for its rows of digits, quick's for any pictures
    default = "quick" if any(word.startswith("data=") for word in overrides) else "arrow"
    config = compose_study((studies or [default])[0], overrides)
    folder = args.out or Path("runs") / config.name
    if args.max_runs and not config.until:
        raise UserError(f"--max-runs {args.max_runs}: is for --until POINTS; give both")
    if config.until and args.spend:
        raise UserError("--until, --spend: one adds seeds until means are sure, one spends a time; give one of them")
    if args.find and not args.spend:
        raise UserError(f"--find {args.find}: is for --spend TIME; give both")
    target: Target | Question | None = Target(config.until, args.max_runs) if config.until else None
    if args.spend:
        target = Question.parse(args.find or "crossover", args.spend)
    find_start(config.executor.kind)  # raises UserError
    if args.detach and args.spend:
        raise UserError("--detach: the rounds of --spend are planned by this command; leave it out")
    if args.detach and config.executor.kind in ("local", "ray"):
        raise UserError(
            f"--detach: runs on executor={config.executor.kind} end with this command; leave it out, or give "
            "--executor slurm"
        )
    files = StudyFiles(folder)
    files.refuse(config)
    if not files.config_path.exists():  # a study that continues may no longer need them
        sources = dict.fromkeys(source_of(run.init) for run in compose_models(config).values())
        raise_all([line for source in sources for line in source_problems(source)])
    return scale(config, folder, args.jobs, dry_run=args.dry_run, detach=args.detach, target=target)


def scale(
    config: StudyConfig,
    folder: Path,
    jobs: int | None,
    *,
    dry_run: bool = False,
    detach: bool = False,
    target: Target | Question | None = None,
) -> int:
    """Train or complete every run of the grid, then write the results and the report; return the exit code.

    With a target rounds of more runs follow; with a question they take the place of the grid. `detach` only starts the
    workers, `dry_run` only prints the cost of the runs. Raises UserError before anything is written.
    """
    began, console, files = time.perf_counter(), Console(stderr=True), StudyFiles(folder)
    if not dry_run and config.executor.kind == "local":
        start_server()  # it imports beside this process
    with status_line("loading torch, lightning and timm"):
        from vitlab.studies.plan import plan_study, show_plan, time_variants
    if continued := files.config_path.exists():
        config = replace(config, settled=files.config().get("settled") or {})
    plan = plan_study(config, jobs=jobs, console=console)
    if warning := plan.warn_of_unseen():
        console.say(f"vitlab: {warning}")
    question = target if isinstance(target, Question) else None
    if question:
        cells = list_cells(plan, question)
        plan.specs.clear()
    if target and continued:  # what earlier rounds asked for comes before the next one
        earlier = [key for key in files.run_keys() if key[0] in plan.by_variant and (question or key[1] in plan.sizes)]
        add_specs(plan, earlier)
    if question:  # first a run of each model at its smallest size, which tells what others cost
        least = min(size for _, size in cells)
        add_specs(plan, [(*of, config.seeds[0]) for of in cells if dry_run or of[1] == least])
    if dry_run:
        startup = time.perf_counter() - began
        elsewhere = config.executor.gpus and config.executor.kind != "local"
        if not elsewhere:
            console.say(f"{config.name}: timing the first steps of each model here; nothing is kept")
        with progress_bar(console) as progress:
            times = {} if elsewhere else time_variants(plan, progress)
        show_plan(plan, times, startup)
        if target:
            print(target.describe())
        return 0
    with hold(folder, wait=True):  # another start of this study may prepare its own
        if not continued and files.config_path.exists():
            files.refuse(config)
        missing = find_missing(files, plan, console)
        add_runs(files, plan)
    added = [parts for parts in missing.values() if "training" not in parts]
    to_train = len(missing) - len(added)
    if detach and (number := min(plan.jobs, to_train + len(added))):
        start_workers(files, plan, number)
        print(f"Started {plural(number, 'worker')}; 'vitlab status {folder}' says how the runs go")
        return 0
    console.say(plan.headline(to_train))
    if config.data.modality == "image" and (flip := config.data.augment.describe_flip()):
        console.say(f"data={config.data.name}: {flip}")
    if question:
        console.say(question.describe())
    if added:
        console.say(f"Adding {', '.join(dict.fromkeys(chain(*added)))} to {plural(len(added), 'finished run')}")
    spending = question and Spending(files, question, began)  # before it trains the runs of a round that was killed
    with LiveReport(files) as live:
        failed = watch(files, plan, live)
        while target:
            stopped = {(spec.config["variant"], spec.size) for spec in plan.specs if spec.name in failed}
            if question:
                added, text = spending.plan(cells, config.seeds, plan.jobs, stopped)
            else:
                rows = [r for r in files.finished_rows() if name_trial(r["model"], r.get("trial")) in plan.by_variant]
                added, text = plan_round([r for r in rows if r["train_size"] in plan.sizes], target, stopped)
            console.say(text)
            if not added:
                break
            with hold(folder, wait=True):
                keys = list(dict.fromkeys([*files.run_keys(), *added]))
                write_json(files.runs_path, keys)  # for a later start
                files.write_config({**files.config(), "sizes": sorted({size for _, size, _ in keys})})
            add_specs(plan, added)
            write_manifests(files, plan)
            failed |= watch(files, plan, live)
        with hold(folder, wait=True):  # of two starts that end at once the later one writes all results
            collect(files)
            finish(files, failed)
    return 1 if failed else 0


def list_cells(plan: "Plan", question: Question) -> dict[tuple[str, int], int]:
    """List the steps of a run of each (trial, size) that tells about a question, the smallest sizes first.

    Raises UserError where this study cannot answer it.
    """
    models = {name.partition(TRIAL)[0] for name in plan.by_variant}
    compared = len(models), len({model.family for model in plan.by_variant.values()})
    if len(models) == 1 or (question.size is None and 2 not in compared):
        has = f"compares two models, and this study has {len(models)}"
        raise UserError(f"--find {question}: {has}; give models=[A,B]{', or --find leader@N' * (len(models) > 1)}")
    if question.size is not None:
        problems = size_problems([question.size], plan.task.train, plan.task.strata, plan.data.name, "N")
        raise_all([f"--find {question}: {line.removesuffix(' or all')}" for line in problems])
    elif len(plan.sizes) < FEWEST_AVERAGED:
        raise UserError(f"--find {question}: a law needs {FEWEST_AVERAGED} sizes and this study has {len(plan.sizes)}")
    sizes, seed = sorted(plan.sizes) if question.size is None else [question.size], plan.config.seeds[0]
    specs = [make_spec(plan.variants[name], size, seed) for size in sizes for name in plan.by_variant]
    return {(spec.variant, spec.size): plan.steps(spec) for spec in specs}


def find_missing(files: StudyFiles, plan: "Plan", console: Console) -> dict[str, list[str]]:
    """Find the parts that runs lack, by the run's name, from the files alone; omit runs that lack nothing.

    Raises UserError where they cannot be done in this folder or from here. Runs that failed in an earlier start, or
    were killed too often, are tried again.
    """
    data, missing, problems = hash_data(plan.config.data, plan.data), {}, []
    for spec in plan.specs:
        run = files.run(spec.name)
        if parts := list_missing(run, spec.config, data):
            missing[spec.name] = parts
        if "training" in parts and run.config_path.exists():
            with collecting(problems):
                refuse_changes(run.folder, run.changes(spec.config))
    raise_all(problems)
    for name in missing:
        if "training" in missing[name] and (damage := files.run(name).read_result()[1]):
            console.say(damage)
    names = [*(spec.name for spec in plan.specs), *(name_run(*key) for key in files.run_keys())]  # all are compared
    if changed := next((name for name in names if files.run(name).data_hash() not in (None, data)), ""):
        raise UserError(
            f"--out {files.folder}: data={plan.data.name} has changed since {changed} began; restore the files, or "
            "give another --out"
        )
    if missing:
        check_executor(plan.config.executor)
    for run in map(files.run, missing):
        claim = read_claim(run.folder)
        if run.error_path.exists() or (claim and claim.is_dead):
            with suppress(Held), hold(run.folder):  # it takes the claims of dead processes away
                run.error_path.unlink(missing_ok=True)
    return missing


def add_runs(files: StudyFiles, plan: "Plan") -> None:
    """Write study.yaml and runs.json (all that was ever asked for here), the subsets' manifests, the samples."""
    from vitlab.reports.figures.images import write_samples

    keys = [spec[:3] for spec in plan.specs]
    settled = {name: model.settled for name, model in plan.by_variant.items()}
    config = files.add_start({**resolved(plan.config), "settled": settled}, keys)
    drawn = write_manifests(files, plan)
    write_samples(plan.task, plan.data, config["sizes"], files.figures, *min(drawn))


def write_manifests(files: StudyFiles, plan: "Plan") -> set[tuple[int, str]]:
    """Write the items in the subset of each size, for every subset seed and key `subset` ever asked for here; return
    these.
    """
    split, sizes = plan.task.train, files.config()["sizes"]
    manifests = [manifest for path in files.subsets.glob("*.json") if (manifest := read_json(path))]
    written = {
        (each["seed"], each.get("subset", NESTED)): (each["sizes"], each.get(f"train_{split.unit}s"))
        for each in manifests
    }
    drawn = {*written, *((subset_seed(spec.config), spec.config["subset"]) for spec in plan.specs)}
    repeated = vars(plan.config.data).get("holdout") == "repeated"  # each seed has a training set of its own
    for seed, choice in sorted(each for each in drawn if written.get(each) != (sizes, split.total)):
        train = split
        if repeated:
            train = open_data(replace(plan.config.data, holdout=seed)).train
            train = long_tail(train, plan.config.data.imbalance)
        name = plan.data.name if choice == NESTED else f"{plan.data.name}-{choice}"
        path = files.subsets / f"{name}-seed{seed}.json"
        write_manifest(path, train, plan.task.strata, sizes, seed, plan.data.name, choice)
    return drawn


def add_specs(plan: "Plan", keys: Iterable[RunKey]) -> None:
    """Add to a plan the runs that it lacks."""
    planned = {spec.name for spec in plan.specs}
    specs = [make_spec(plan.variants[variant], size, seed) for variant, size, seed in keys]
    plan.specs.extend(spec for spec in specs if spec.name not in planned)


def start_workers(files: StudyFiles, plan: "Plan", number: int) -> Any:
    config = plan.config.executor
    return find_start(config.kind)(files.folder, number, replace(config, cpus=plan.cores))


class LiveReport(AbstractContextManager):
    """Rewrites report.html as runs end, between two events: meanwhile no worker is started.

    A study that ends early, by an error or Ctrl-C, leaves a page that no longer reloads itself.
    """

    started, changed, due = False, False, 0.0

    def __init__(self, files: StudyFiles):
        self.files = files

    def __exit__(self, kind: type[BaseException] | None, *_: Any) -> None:
        if kind and self.started:
            self.write(running=False)

    def update(self, changed: bool) -> None:
        """Update the report, at every look at the study; `changed`: a run has ended."""
        began = time.monotonic()
        if self.changed and not changed and began >= self.due:
            self.write()
            ended = time.monotonic()
            self.changed, self.due = False, ended + pause_after(ended - began, *WRITE)
        self.changed |= changed

    def write(self, running: bool = True) -> None:
        """Write the report; an error in it goes to LOG and does not reach the study."""
        self.started = True
        try:
            from vitlab.reports.pages.study import write_report  # 2 s, here: nothing waits for what draws
            from vitlab.studies.results import load_results

            write_report(load_results(self.files.folder), running=running)
        except Exception:
            with suppress(OSError):
                (self.files.folder / LOG).write_text(traceback.format_exc())


def pause_after(took: float, least: float, most: float) -> float:
    """Choose the seconds to wait after work that took so long; it may have been suspended on the way."""
    return min(max(least, took / SHARE), most)


def watch(files: StudyFiles, plan: "Plan", live: LiveReport) -> dict[str, str]:
    """Start workers, and watch the folder until every run has ended, other starts' runs too.

    While runs are free, workers that have died are replaced. results.csv and the report grow with each run that ends.
    Returns the first line of each failed run's error. Ctrl-C, or an error, ends the workers and is raised again.
    """
    reader = StatusReader(files, plan.variants)
    crews, ended, fruitless = [], -1, 0
    with redirect_stdout(sys.stderr), Display(Console(stderr=True)) as display:  # Ray's own lines, too
        try:
            while (began := time.monotonic()) and (status := reader.read()).of_state("waiting", "running"):
                if changed := display.show(status):
                    collect(files)
                pause = pause_after(time.monotonic() - began, *LOOK)
                live.update(changed)
                alive = sum(crew.count() for crew in crews)
                if (room := min(plan.jobs - alive, len(status.of_state("waiting")))) > 0:
                    now = len(status.of_state("finished", "failed"))
                    fruitless, ended = (0 if alive or now > ended else fruitless + 1), now
                    if fruitless > plan.jobs * (plan.config.executor.retries + 1) + 1:
                        raise UserError(f"executor={plan.config.executor.kind}: workers end before a run does")
                    crews.append(start_workers(files, plan, room))
                time.sleep(pause)
            display.show(status)
        except BaseException:
            for crew in crews:
                crew.stop()
            raise
        finally:
            collect(files)
    names = {spec.name for spec in plan.specs}
    return {run.run: run.error for run in status.of_state("failed") if run.run in names}


def finish(files: StudyFiles, failed: Mapping[str, str]) -> None:
    """Write the report and print the result."""
    from vitlab.reports.pages.study import write_report
    from vitlab.reports.wandb import log_study
    from vitlab.studies.results import load_results

    results = load_results(files.folder)
    write_report(results)
    (files.folder / LOG).unlink(missing_ok=True)
    log_study(results)
    lacking = {run: error for run in results.run_files if (error := files.run(run).error())}  # analyses or probes
    errors = {run: f"{error} (see {files.folder / run / 'log.txt'})" for run, error in {**lacking, **failed}.items()}
    show(results, errors)


def show(results: "Results", failed: Mapping[str, str] | None = None) -> None:
    """Print a study's findings, why runs of this start failed, and where the files are."""
    from vitlab.reports.provenance import advise_tuning
    from vitlab.reports.wandb import WAITING, list_uploads
    from vitlab.reports.words import headline, make_size_table

    console, files = Console(), results.files
    if results.rows:
        print_table(make_size_table(results))
    *found, sight = headline(results)
    for text in filter(None, [*found, advise_tuning(results), sight]):
        console.print(escape(text), highlight=False)
    for run, error in (failed or {}).items():
        console.print(f"[red]failed[/red]   {escape(f'{run}: {error}')}", soft_wrap=True)
    console.say(f"report   {files.report_path}")
    console.say(f"results  {files.results_path}")
    if any(state == WAITING for _, state, _ in list_uploads(results)):
        console.say(f"W&B      vitlab sync {files.folder}")
    urls = {run.wandb["url"].partition("/runs/")[0] for run in results.run_files.values() if run.wandb.get("url")}
    for url in sorted(urls):
        console.say(f"W&B      {url}")


def print_table(sizes: "SizeTable") -> None:
    """Print a row for each size, a column for each model; on a terminal too narrow for that a line for each pair."""
    from vitlab.reports.words import AGAINST

    console, wide, (first, *names) = Console(), Console(width=UNLIMITED), sizes.header
    named = [name if name == AGAINST else name.replace(" ", "\n") for name in names]  # an axis a line
    table = tabulate([first, *named], sizes.body, numbers=len(names))
    if wide.measure(table).maximum > console.width:
        table = Table(Column(no_wrap=True), Column(overflow="fold"), box=None, pad_edge=False, show_header=False)
        for size, *cells in sizes.body:
            table.add_row(f"[bold]{escape(first)} {escape(size)}")
            for name, cell in zip(names, cells, strict=True):
                table.add_row(f"  {escape(name)}", escape(cell))
    console.print()
    console.print(table)
    console.print(escape(sizes.note), highlight=False, style="dim")
    console.print()
