"""`vitlab advise`: which model for these pictures, from where, and what more labels would bring."""

import csv
import io
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rich.markup import escape

from vitlab.commands.arguments import CommandParser, number_between, status_line
from vitlab.commands.scale import parse_jobs, scale
from vitlab.config import UserError
from vitlab.config.plain_yaml import dump_yaml
from vitlab.console import Console
from vitlab.data.opening import progress_bar
from vitlab.files import write_json, write_text
from vitlab.formatting import duration, plural
from vitlab.studies.grid import compose_models, compose_study
from vitlab.studies.launching.processes import start_server
from vitlab.studies.status import is_finished
from vitlab.studies.store import StudyFiles
from vitlab.training.files import refuse_unwritable

if TYPE_CHECKING:
    from vitlab.data.inspect.folder import Look

DESCRIPTION = """Compare models on your own pictures, and say which to take and what more labels would bring.
  vitlab advise photos                        # a folder of pictures for each class, or train/, val/, test/ of them
  vitlab advise photos --hours 0.2 --out advice
  vitlab advise data=imagetable data.root=photos data.path=labels.csv data.group=patient
The study is chosen for this machine and these hours. Run the same command again to continue where it stopped."""
HOURS = 1.0
FEW = 5000  # pictures: with fewer every seed draws its own test set


def main(words: Sequence[str]) -> int:
    parser = CommandParser("advise", DESCRIPTION)
    parser.add_argument("words", nargs="+", metavar="FOLDER | key=value", help="the pictures; keys change the study")
    parser.add_argument(
        "--hours", type=number_between(0.01, 1000), default=HOURS, metavar="H", help="for all of it (default: 1)"
    )
    parser.add_argument("--jobs", type=parse_jobs, metavar="N", help="runs at a time (default: auto)")
    parser.add_out("the folder of the advice (default: runs/advice-FOLDER)")
    args = parser.parse_intermixed_args(words)
    folders = [word for word in args.words if "=" not in word]
    overrides = [word for word in args.words if "=" in word]
    if len(folders) > 1:
        raise UserError(f"'{folders[1]}': give one folder of pictures, '{folders[0]}' is given already")
    if not folders and not any(word.startswith("data=") for word in overrides):
        raise UserError("no pictures: give a folder, or data=NAME")
    root = Path(folders[0]).expanduser() if folders else None
    out = args.out or Path("runs") / f"advice-{root.resolve().name if root else 'data'}"
    if root is not None:
        check_folder(root, out)
    refuse_unwritable(out)
    if not (out / "proposal.yaml").is_file():
        propose(root, out, overrides, args.hours, args.jobs)
    return advise(out, overrides, args.jobs)


def check_folder(root: Path, out: Path) -> None:
    from vitlab.commands.data import check_out
    from vitlab.data.images import imagefolder

    if problems := list(imagefolder.check_root(root)):
        raise UserError(problems)
    check_out(out, root)


def propose(root: Path | None, out: Path, overrides: Sequence[str], hours: float, jobs: int | None) -> None:
    """Look at the pictures, time the candidates, write the study that fits as OUT/proposal.yaml. Raises UserError."""
    console = Console(stderr=True)
    data: dict[str, Any] = {}
    name = "advice"
    if root is not None:
        look = look_at_folder(root, out, console)
        name, data = root.resolve().name, describe_folder(root, look, out)
    with status_line("loading torch, lightning and timm"):
        from vitlab.studies import proposal
        from vitlab.studies.plan.study import plan_study
        from vitlab.studies.plan.timing import time_variants

    families = list_families(console, proposal.PRETRAINED)
    if root is not None:
        size = proposal.choose_image_size(look.image_size, hours, pretrained=bool(families), gpu=has_gpu())
        data["image_size"] = size

    def compose(level: proposal.Level, folder: Path) -> tuple[Any, str]:
        text = dump_yaml(proposal.compose_proposal(name, data, families, level))
        write_text(folder / "proposal.yaml", text)
        return compose_study(str(folder / "proposal.yaml"), overrides), text

    with tempfile.TemporaryDirectory(prefix="vitlab-") as scratch:
        config, _ = compose(proposal.LEVELS[-1], Path(scratch))
        start_workers(config)
        plan = plan_study(config, jobs=jobs, console=console)
        with progress_bar(console) as progress:
            times = time_variants(plan, progress)
        level, seconds = proposal.choose_level(
            hours, times, len(plan.task.validation), len(plan.task.test), plan.jobs, len(plan.task.train)
        )
        config, text = compose(level, Path(scratch))
    largest = f"{len(plan.task.train):,} training pictures"
    rates = f", {level.rates} learning rates each" if level.rates > 1 else ""
    grid = f"{plural(level.sizes, 'size')} up to {largest}, {plural(level.seeds, 'seed')}, {level.steps:,} steps{rates}"
    say(f"{plural(len(times), 'model')} ({', '.join(times)}), {grid}: about {duration(seconds)}", console)
    head = f"# Chosen by vitlab advise. To run it alone: vitlab scale {out / 'proposal.yaml'} --out {out / 'study'}\n"
    write_text(out / "proposal.yaml", head + text)


def start_workers(config: Any) -> None:
    from vitlab.commands import study_runs

    start_server(study_runs.list_worker_modules(compose_models(config).values()))


def has_gpu() -> bool:
    import torch

    return torch.cuda.is_available()


def look_at_folder(root: Path, out: Path, console: Console) -> "Look":
    """What the folder holds, written to OUT/data.html and OUT/data.json; says what is left out."""
    from vitlab.data.inspect.folder import look_at, summarize
    from vitlab.reports.pages.data_look import write_data_page

    with progress_bar(console) as progress:
        look = look_at(root, progress)
    facts = summarize(look)
    write_json(out / "data.json", facts)
    page = write_data_page(out / "data.html", look, facts)
    for picture in look.unreadable:
        say(f"left out, cannot be read: {picture.path} ({picture.error})", console)
    for skipped in look.skipped:
        say(f"left out, {skipped.kind}: {plural(skipped.count, 'file')}, {', '.join(skipped.names)}", console)
    if look.pairs:
        say(f"{plural(len(look.pairs), 'picture')} look like another one; copies stay on one side of a split", console)
    say(f"a look at the pictures: {page}", console)
    return look


def describe_folder(root: Path, look: "Look", out: Path) -> dict[str, Any]:
    """The data of the study: OUT/pictures.csv lists the pictures that can be read, with copies in one group."""
    from vitlab.data.images.imagefolder import find_splits

    names = {folder: part for part, folder in find_splits(root).items()}
    groups = list(range(len(look.pictures)))
    for pair in sorted(look.pairs, key=lambda pair: pair.second):
        groups[pair.second] = groups[pair.first]
    if names:  # a copy of a test picture is no training picture
        groups = find_homes(groups, [names[part] for part, _ in look.places])
    table = io.StringIO()
    writer = csv.writer(table, lineterminator="\n")
    writer.writerow(["file", "label", "group", *(["split"] if names else [])])
    for picture, (part, label), group in zip(look.pictures, look.places, groups, strict=True):
        if group is not None:
            writer.writerow([picture.path, label, group, *([names[part]] if names else [])])
    write_text(out / "pictures.csv", table.getvalue())
    data = {"name": "imagetable", "root": str(root.resolve()), "path": str((out / "pictures.csv").resolve())}
    data["group"] = "group"
    if names:
        return {**data, "split": "split"}
    return {**data, "holdout": "repeated"} if len(look.pictures) < FEW else data


def find_homes(groups: list[int], parts: Sequence[str]) -> list[int | None]:
    """The group of each picture; None for a training or validation picture with a copy that is held out."""
    order = {"test": 0, "validation": 1, "train": 2}
    home: dict[int, int] = {}
    for group, part in zip(groups, parts, strict=True):
        home[group] = min(order[part], home.get(group, len(order)))
    return [group if order[part] == home[group] else None for group, part in zip(groups, parts, strict=True)]


def list_families(console: Console, pretrained: dict[str, tuple[str, str]]) -> list[str]:
    """The families whose pretrained weights are in the hub's cache or can be downloaded; says of the others why not."""
    from vitlab.training.sources import read_weights

    families = []
    for family, (_, source) in pretrained.items():
        try:
            read_weights(source)
        except UserError as error:
            say(
                f"without pretrained models ({error.problems[0]}); to add them, give the command where the network is, "
                "or copy that cache from there",
                console,
            )
            if not families:
                return []  # without a network the others fail as slowly
        else:
            families.append(family)
    return families


def advise(out: Path, overrides: Sequence[str], jobs: int | None) -> int:
    """Run the proposed study, print the verdict and write OUT/advice.html; the exit code. Raises UserError."""
    config, folder = compose_study(str(out / "proposal.yaml"), overrides), out / "study"
    files, console = StudyFiles(folder), Console(stderr=True)
    if not is_finished(files, config, console):
        files.refuse(config)
        if code := scale(config, folder, jobs=jobs, dry_run=False):
            return code
    from vitlab.reports.advice import advise as judge
    from vitlab.reports.advice import describe_advice
    from vitlab.reports.pages.advice import write_advice_page
    from vitlab.studies.results import load_results
    from vitlab.training.mistakes import examine_runs

    results = load_results(folder)
    advice = judge(results)
    if advice is None:
        print("vitlab: no run with all pictures has finished, so there is no verdict", file=sys.stderr)
        return 1
    rows = [row for row in results.rows if (row["model"], row["train_size"]) == (advice.chosen.model, advice.size)]
    with progress_bar(console) as progress:
        examined = examine_runs([files.run(row["run"]).folder for row in rows], progress)
    sentences = describe_advice(advice, examined)
    page = write_advice_page(out, results, advice, sentences, examined)
    write_json(out / "advice.json", {"verdict": sentences, "models": [asdict(one) for one in advice.standings]})
    stdout = Console()
    stdout.print()
    for text in sentences:
        stdout.print(escape(text), highlight=False)
    if examined.milliseconds is not None:
        chosen = advice.chosen
        stdout.print(
            f"{escape(chosen.model)}: trained in {duration(chosen.seconds)}, {examined.milliseconds:.1f} ms a picture, "
            f"{examined.megabytes:.1f} MB",
            highlight=False,
        )
    stdout.print(f"verdict  {escape(str(page))}", soft_wrap=True, highlight=False)
    return 0


def say(text: str, console: Console) -> None:
    console.print(escape(text), soft_wrap=True, highlight=False)
