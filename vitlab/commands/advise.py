"""`vitlab data`: a look at pictures before anything is trained; `advise`: which model for them, what labels bring."""

import argparse
import json
import os
import re
import shlex
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from rich.markup import escape

from vitlab.commands.arguments import CommandParser, number_between, status_line, typed
from vitlab.config import TrainConfig, UserError, collecting, compose, first_line, load, printable, raise_all
from vitlab.config.groups import dump_yaml
from vitlab.config.schema.data import DataConfig
from vitlab.console import Console, tabulate
from vitlab.data.images import imagefolder
from vitlab.data.opening import open_data, progress_bar
from vitlab.files import write_json, write_text
from vitlab.formatting import cut_lines, duration, plural, whole
from vitlab.training.files import mark_output, refuse_output

if TYPE_CHECKING:
    from vitlab.advice.backbones import Backbone
    from vitlab.advice.compare import Network
    from vitlab.advice.pictures import Pictures
    from vitlab.data.look import Look

# ---- data


LOOK = """Look at labelled pictures, in one subfolder for each class or in a table, before anything is trained.
  vitlab data photos                     # counts, sizes, files that cannot be read, copies
  vitlab data data=imagetable data.root=photos data.path=labels.csv
  vitlab data photos --out look          # the same with pictures: look/data.html, look/data.json

Copies are found when they are encoded again, resized, mirrored or a little brighter, not when cropped or turned."""
MOST = 20  # classes, files and pairs that are listed


def look(words: Sequence[str]) -> int:
    parser = CommandParser("data", LOOK)
    about = "class folders, or train/, val/ and test/ with class folders; or data=imagetable and its keys"
    parser.add_argument("words", nargs="+", metavar="FOLDER | key=value", help=about)
    parser.add_out("where to write data.html and data.json")
    parser.add_json()
    args = parser.parse_intermixed_args(words)
    _, facts, paths = look_into(find_source(args.words), args.out, "data")
    if args.json:
        print(json.dumps(facts, indent=1))
    else:
        show(facts)
        if paths:
            print("", *paths, sep="\n")
    return 0


def find_source(words: Sequence[str]) -> Path | DataConfig:
    """Return the folder or the table of labelled pictures that a command's words name. Raises UserError."""
    keys = [word for word in words if "=" in word]
    is_table = "data=imagetable" in keys and all(word.startswith(("data=imagetable", "data.")) for word in words)
    if not is_table and (keys or len(words) > 1 or not words[0]):
        raise UserError(
            f"{' '.join(words)}: give one folder of pictures and no keys, or data=imagetable data.root=FOLDER "
            "data.path=TABLE and its other keys"
        )
    if not is_table:
        raise_all(imagefolder.check_root(root := Path(words[0]).expanduser()))
        return root
    config = compose(TrainConfig, list(keys), base={"task": "classification"}).data
    if config.target != "class":
        raise UserError(f"data.target={config.target}: give classes")
    return config


def name_source(source: Path | DataConfig) -> list[str]:
    """Name a folder or a table for the mark of an output."""
    return [str(source)] if isinstance(source, Path) else [str(source.root), str(source.path)]


def look_into(source: Path | DataConfig, out: Path | None, command: str) -> "tuple[Look, dict[str, Any], list[Path]]":
    """Look at pictures for a command; return the look, its facts, the page and document written to OUT.

    Raises UserError.
    """
    root = source if isinstance(source, Path) else Path(source.root).expanduser()
    if out and source is root and out.resolve().is_relative_to(root.resolve()):
        raise UserError(f"--out {out}: is inside {root}, whose folders are classes; give another folder")
    if out:
        refuse_output(out, command, *name_source(source))
    from vitlab.data.images import tables
    from vitlab.data.look import look_at, summarize  # Pillow: mistakes are answered without it

    with progress_bar(Console(stderr=True)) as progress:
        found = look_at(root, progress, None if source is root else tables.list_splits(source))
    config = load("data", {"name": "imagefolder", "root": str(root)}) if source is root else source
    facts = {**summarize(found), "flip": config.augment.describe_flip()}
    if out is None:
        return found, facts, []
    from vitlab.reports.pages.data_look import write_data_page

    mark_output(out, command, *name_source(source))
    write_json(out / "data.json", facts)
    return found, facts, [write_data_page(out / "data.html", found, facts), out / "data.json"]


def show(facts: Mapping[str, Any]) -> None:
    """Print the facts of `summarize`, the longest lists cut short."""
    from vitlab.data.look import describe, describe_duplicates, describe_pair, suggest

    console = Console(soft_wrap=True, highlight=False)
    classes, splits = facts["classes"], facts["splits"]
    rows = [[printable(name), *(f"{n:,}" for n in counts.values())] for name, counts in classes.items()]
    if len(rows) > 2 * MOST:  # those with the most and the fewest; a few more are better shown than counted
        rows = [*rows[: MOST // 2], [f"... {len(rows) - MOST:,} classes more ..."], *rows[-MOST // 2 :]]
    totals = (f"{sum(counts[part] for counts in classes.values()):,}" for part in splits)
    rows.append([plural(len(classes), "class", "classes"), *totals])
    console.print(tabulate(["class", *splits], rows, numbers=len(splits)))
    lines = ["", *(f"{what}: {text}" for what, text in describe(facts))]
    unreadable = [f"{file['path']}: {file['reason']}" for file in facts["unreadable"]]
    lines += list_some(f"cannot be read: {len(unreadable):,}; data.skip_unreadable=true leaves them out", unreadable)
    pairs = [f"{pair['second']} = {pair['first']}  {describe_pair(pair)}".rstrip() for pair in facts["duplicates"]]
    lines += list_some(f"pictures that look like another one: {describe_duplicates(facts)}", pairs)
    lines += [] if pairs else ["pictures that look like another one: none"]
    lines += list_some("data=imagefolder refuses this folder:", facts["problems"])
    lines += ["", f"suggested: {suggest(facts)}"] if suggest(facts) else []
    for line in lines:
        console.print(escape(printable(line)))


def list_some(title: str, lines: Sequence[str]) -> Iterator[str]:
    if lines:
        yield from ("", title, *(f"  {line}" for line in cut_lines(lines, MOST, ", which --json lists", "")))


# ---- advise


DESCRIPTION = """Say which model to take for your own pictures, and what more labels would bring.
  vitlab advise photos                        # a folder of pictures for each class, or train/, val/, test/ of them
  vitlab advise photos --target 95% --hours 0.2
  vitlab advise photos --backbones timm:resnet50.a1_in1k,runs/photos/vit_nano-n653-s0
  vitlab advise data=imagetable data.root=photos data.path=labels.csv data.group=patient

`vitlab predict DIR NEW_PICTURES` then says what the model that it names makes of other pictures.

It compares classifiers that need no network, and classifiers on frozen features of pretrained networks: each picture
goes through each network once, and its features are kept in DIR/features. DIR/networks.yaml is a study that trains
networks on these pictures; the next `vitlab advise` compares them, too."""
FEWEST = 20  # pictures
STEPS, SEEDS = 1000, [0, 1, 2]  # of networks; the steps are doubled while one is undertrained
SCRATCH = ("vit_nano", "resnet_nano")
SIDES = 32, 64  # pixels a side of networks from scratch, at least and at most


def advise(words: Sequence[str]) -> int:
    begun = time.monotonic()
    parser = CommandParser("advise", DESCRIPTION)
    parser.add_argument("words", nargs="+", metavar="FOLDER | key=value", help="the pictures")
    about = "take so long: networks whose features take too long are left out (default: 1)"
    parser.add_argument("--hours", type=number_between(1 / 60, 1000), default=1.0, metavar="H", help=about)
    parser.add_argument("--target", type=parse_share, metavar="SHARE", help="such as 95%%: the labels that it takes")
    about = "timm:NAME, timm:NAME=FILE or a run, with commas between; none for no network (default: three of timm)"
    parser.add_argument("--backbones", metavar="A,B", help=about)
    about = "pixels a side that these networks see (default: the pictures' own, 96 to 224)"
    parser.add_argument("--image-size", type=number_between(16, 1024, int), metavar="N", help=about)
    parser.add_out("the folder of the advice (default: runs/advice-FOLDER)")
    args = parser.parse_intermixed_args(words)
    source = find_source(args.words)
    root = source if isinstance(source, Path) else Path(source.root)
    out = args.out or Path("runs") / f"advice-{root.resolve().name if source is root else 'table'}"
    refuse_output(out, "advise", *name_source(source))
    console = Console(stderr=True)
    with status_line("loading torch, timm and scikit-learn"):
        from vitlab.advice import backbones as frozen
    asked = None if args.backbones is None else [one for one in args.backbones.split(",") if one not in ("", "none")]
    problems: list[str] = []
    for name in frozen.DEFAULT if asked is None else asked:  # before thousands of pictures are read
        with collecting(problems):
            frozen.open_backbone(name, args.image_size or frozen.SMALLEST)
    if problems and (asked or len(problems) == len(frozen.DEFAULT)):
        raise UserError(problems if asked else f"{problems[0]}; --backbones none compares without networks")
    if source is root:
        pictures = list_folder(root, out, console)
    else:
        from vitlab.advice.pictures import list_table_pictures

        with progress_bar(console) as progress:
            pictures = list_table_pictures(source, progress)
        mark_output(out, "advise", *name_source(source))
    from vitlab.data.look import describe_few

    count, classes = len(pictures.files), len(np.unique(pictures.labels))
    if count < FEWEST or classes < 2:
        found = f"{plural(count, 'picture')} in {plural(classes, 'class', 'classes')}"
        raise UserError(f"{root}: {found}; advise needs {FEWEST} pictures or more, in two classes or more")
    training = pictures.labels if pictures.held_out is None else pictures.labels[~pictures.held_out]
    counts = np.bincount(training, minlength=len(pictures.classes)).tolist()
    if few := describe_few(dict(zip(pictures.classes, counts, strict=True)), whole=pictures.held_out is None):
        console.say(printable(few))
    return compare(pictures, out, args, begun, console)


parse_share = typed(
    lambda text: float(text.removesuffix("%")) / (100 if text.endswith("%") else 1),
    "an accuracy between 0% and 100%, such as 95%",
    lambda share: 0 < share < 1,
)


def list_folder(root: Path, out: Path, console: Console) -> "Pictures":
    """List the pictures of a folder, print what is left out, and write a look at it to OUT/data.html and data.json."""
    from vitlab.advice.pictures import list_folder_pictures

    look, facts, (page, _) = look_into(root, out, "advise")
    for picture in look.unreadable:
        console.say(printable(f"left out, cannot be read: {picture.path} ({picture.error})"))
    for skipped in look.skipped:
        files = f"{plural(skipped['count'], 'file')}, {', '.join(skipped['names'])}"
        console.say(printable(f"left out, {skipped['kind']}: {files}"))
    if look.pairs:
        console.say(f"{plural(len(look.pairs), 'picture')} look like another one; copies stay on one side of a split")
    console.say(f"a look at the pictures: {page}")
    return list_folder_pictures(root, look, facts["bits"])


def compare(pictures: "Pictures", out: Path, args: argparse.Namespace, begun: float, console: Console) -> int:
    """Compare, print the answer, write OUT/advice.json and OUT/advice.html; return the exit code. Raises UserError."""
    from vitlab.advice import backbones as frozen
    from vitlab.advice import compare as arrays
    from vitlab.reports import advice as report

    given = None if args.backbones is None else [one for one in args.backbones.split(",") if one not in ("", "none")]
    networks: dict[str, Backbone] = {}
    opened: dict[str, str] = {}  # name -> source
    problems: list[str] = []
    side = args.image_size or min(max(pictures.side, frozen.SMALLEST), frozen.LARGEST)
    for source in frozen.DEFAULT if given is None else given:
        with collecting(problems):
            one = frozen.open_backbone(source, side)
            if one.name in networks:
                raise UserError(f"--backbones {source}: has the name of {opened[one.name]}; rename one of them")
            networks[one.name], opened[one.name] = one, source
    if problems and given:
        raise UserError(problems)
    for problem in problems:
        console.say(problem)
    seen = [f"{one.name} at {' x '.join(map(str, one.size))} pixels" for one in networks.values()]
    known = f" and frozen features of {', '.join(seen)}" if seen else ""
    count = plural(len(pictures.paths), "picture")
    console.say(f"{count}: classifiers on pixels and colors{known}, repeated for up to {duration(3600 * args.hours)}")
    features: dict[str, np.ndarray] = {}
    failed = []  # of networks: one does not take the others' work with it
    deadline = begun + 3600 * args.hours
    kept = "features" if pictures.bits == 16 else f"features-{pictures.bits}-bit"
    with progress_bar(console) as progress:
        for backbone in (frozen.PIXELS, *networks.values()):
            place = out / kept, backbone, pictures.root, pictures.paths, pictures.digests
            shown = progress if backbone is frozen.PIXELS else arrays.within(deadline, args.hours, progress)
            try:
                features[backbone.name] = frozen.compute_features(*place, pictures.bits, shown)
            except RuntimeError as error:  # torch's, such as too little memory
                failed.append(f"without {backbone.name}: {first_line(error)}")
                console.say(failed[-1])
        small = features[arrays.PIXELS]
        features |= {arrays.PIXELS: frozen.scale_pixels(small), arrays.COLORS: frozen.count_colors(small)}
        splits = arrays.make_splits(pictures.labels, pictures.groups, pictures.held_out)
        outcomes = arrays.compare_candidates(features, pictures.labels, splits, progress, deadline)
    write_text(out / "pictures.csv", pictures.to_table())
    trained, steps = read_networks(pictures, out)
    answer = arrays.judge(outcomes, [*trained.values()], pictures.labels, pictures.groups, pictures.held_out)
    outcome = answer.chosen.outcome or outcomes[0]
    mistakes = arrays.find_mistakes(outcome, pictures.labels)
    sentences = report.describe_advice(answer, mistakes, args.target) + failed
    ranked = [one.candidate.features for one in outcomes]
    tuned = [name for name in ranked if opened.get(name, "").startswith("timm:")][:1]
    sentences += write_study(pictures, out, {name: opened[name] for name in tuned}, trained, steps)
    costs = arrays.describe_costs(outcome, features, networks, pictures.labels)
    facts = report.summarize_advice(answer, sentences, mistakes, args.target, pictures.paths)
    if answer.chosen.network:
        facts["predictor"] = {"run": os.path.relpath(answer.chosen.network.folder, out)}
    else:
        kind, name = outcome.candidate.kind, outcome.candidate.features
        facts["predictor"] = {"kind": kind, "features": name, "source": opened.get(name), "side": side}
        facts["predictor"] |= {"classes": list(pictures.classes), "temperature": mistakes.temperature}
        facts["predictor"] |= {"bits": pictures.bits, "kept": kept}
    write_json(
        out / "advice.json", {**facts, "hours": args.hours, "pictures": len(pictures.paths), "data": pictures.digest}
    )
    page = report.write_advice_page(out, pictures, answer, sentences, mistakes, costs)
    use = [f"use it   vitlab predict {out} NEW_PICTURES"] if answer.beats_chance else []
    for text in [*sentences, costs, f"verdict  {page}", *use]:
        Console().say(text)
    return 0


def place_study(pictures: "Pictures", out: Path, steps: int) -> Path:
    """Return the folder of the study of networks, beside OUT; other pictures have another."""
    name = re.sub(r"[^\w.+]+", "-", out.resolve().name).strip("-.+")
    return out.parent / f"{name}-{pictures.digest[:8]}-{steps}"


def read_networks(pictures: "Pictures", out: Path) -> "tuple[dict[str, Network], int]":
    """Read the networks that studies of OUT/networks.yaml have trained, and the steps of the next study.

    Where a network is undertrained, the next study has twice the steps.
    """
    from vitlab.advice.compare import Network
    from vitlab.studies.results import load_results

    found, steps, places = {}, STEPS, {path: place for place, path in enumerate(pictures.paths)}
    table = {"root": str(pictures.root), "path": str(out / "pictures.csv")}
    while (folder := place_study(pictures, out, steps)).joinpath("study.yaml").is_file():
        results = load_results(folder)
        for name, cells in results.by_model.items():
            cell, right, tested = cells[max(cells)], *np.zeros((2, len(places)))
            runs = [run for row in cell.rows if (run := results.run_files[row["run"]]).outcomes]
            for run in runs:
                data = open_data(load("data", run.config["data"] | table))
                held = [places[str(path)] for path in data.test.names]
                right[held] += run.outcomes.means
                tested[held] += 1
            hits, first = np.where(tested > 0, right, np.nan) / np.maximum(tested, 1), cell.rows[0]
            place = str(folder / first["run"])
            found[name] = Network(name, hits, len(runs), first["steps"], cell.undertrained, place)
        if not any(found[name].undertrained for name in results.by_model):
            break
        steps *= 2
    return found, steps


def write_study(
    pictures: "Pictures", out: Path, tuned: Mapping[str, str], trained: "Mapping[str, Network]", steps: int
) -> Iterator[str]:
    """Write OUT/networks.yaml, a study of the networks that are not trained enough; yield a sentence that names it.

    tuned: the pretrained network to fine-tune, if any: its name -> as in --backbones.
    """
    models: dict[str, Any] = {name: {"model": name} for name in SCRATCH}
    for name, source in tuned.items():
        network, _, file = source.partition("=")
        first = {"init": str(Path(file).resolve())} if file else {"model.pretrained": True}
        models[f"{name} fine-tuned"] = {"model": network, "recipe": "finetune", **first}
    models = {name: keys for name, keys in models.items() if name not in trained or trained[name].undertrained}
    if not models:
        return
    side = min(max(16 * round(pictures.side / 16), SIDES[0]), SIDES[1])
    data = {"name": "imagetable", "root": str(pictures.root), "path": str((out / "pictures.csv").resolve())}
    data |= {"group": "group", "image_size": side, "bits": pictures.bits}
    data |= {"holdout": "repeated"} if pictures.held_out is None else {"split": "split"}
    folder, path = place_study(pictures, out, steps), out / "networks.yaml"
    study = {"name": folder.name, "models": models, "data": data, "sizes": ["all"], "seeds": SEEDS}
    study |= {"budget": {"steps": steps}, "trainer": {"evaluations": 4}, "analyses": [], "wandb": {"mode": "off"}}
    write_text(path, dump_yaml(study))
    place = [] if folder == Path("runs") / folder.name else ["--out", str(folder)]
    command = shlex.join(["vitlab", "scale", str(path), *place])
    training = f"train {', '.join(models)} for {whole(steps)} steps and advise again: {command}"
    yield f"To learn whether a network trained on these pictures is better, {training}"
    if flip := load("data", data).augment.describe_flip():
        yield f"That {flip}."
