"""`vitlab data`: a look at a folder of labelled pictures before anything is trained. Imports no torch."""

import json
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rich.markup import escape

from vitlab.commands.arguments import CommandParser, non_empty_path
from vitlab.config import UserError, printable, raise_all
from vitlab.console import Console, tabulate
from vitlab.files import write_json
from vitlab.formatting import cut_lines, plural
from vitlab.training.files import refuse_unwritable

if TYPE_CHECKING:
    from vitlab.data.look import Look

DESCRIPTION = """Look at a folder of pictures, one subfolder for each class, before anything is trained.
  vitlab data photos                     # counts, sizes, files that cannot be read, copies
  vitlab data photos --out look          # the same with pictures: look/data.html, look/data.json

Copies are found when they are encoded again, resized, mirrored or a little brighter, not when cropped or turned."""
MOST = 20  # classes, files and pairs that are listed


def look(words: Sequence[str]) -> int:
    parser = CommandParser("data", DESCRIPTION)
    about = "class folders, or train/, val/ and test/ with class folders"
    parser.add_argument("folder", metavar="FOLDER", type=non_empty_path, help=about)
    parser.add_out("where to write data.html and data.json")
    parser.add_json()
    args = parser.parse_args(words)
    _, facts, paths = look_into(args.folder.expanduser(), args.out)
    if args.json:
        print(json.dumps(facts, indent=1))
    else:
        show(facts)
        if paths:
            print("", *paths, sep="\n")
    return 0


def look_into(root: Path, out: Path | None) -> "tuple[Look, dict[str, Any], list[Path]]":
    """Look at a folder; return the look, its facts, and the page and the document written to OUT. Raises UserError."""
    from vitlab.data.images import imagefolder  # numpy: the help does without

    raise_all(imagefolder.check_root(root))
    if out and out.resolve().is_relative_to(root.resolve()):
        raise UserError(f"--out {out}: is inside {root}, whose folders are classes; give another folder")
    if out:
        refuse_unwritable(out)
    from vitlab.data.look import look_at, summarize  # Pillow: mistakes are answered without it
    from vitlab.data.opening import progress_bar

    with progress_bar(Console(stderr=True)) as progress:
        found = look_at(root, progress)
    facts = summarize(found)
    if out is None:
        return found, facts, []
    from vitlab.reports.pages.data_look import write_data_page

    write_json(out / "data.json", facts)
    return found, facts, [write_data_page(out / "data.html", found, facts), out / "data.json"]


def show(facts: Mapping[str, Any]) -> None:
    """Print the facts of `summarize`, the longest lists cut short."""
    from vitlab.data.look import describe, describe_duplicates, describe_pair, suggest

    console = Console(soft_wrap=True, highlight=False)
    console.print(tabulate(["class", *facts["splits"]], list_classes(facts), numbers=len(facts["splits"])))
    lines = ["", *(f"{what}: {text}" for what, text in describe(facts))]
    unreadable = [f"{file['path']}: {file['reason']}" for file in facts["unreadable"]]
    lines += list_some(f"cannot be read: {len(unreadable):,}", unreadable)
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


def list_classes(facts: Mapping[str, Any]) -> list[list[str]]:
    """List the counts of the classes; of many, the classes with the most and the fewest training pictures."""
    rows = [[printable(name), *(f"{n:,}" for n in counts.values())] for name, counts in facts["classes"].items()]
    if len(rows) > 2 * MOST:  # a few more are better shown than counted
        rows = [*rows[: MOST // 2], [f"... {len(rows) - MOST:,} classes more ..."], *rows[-MOST // 2 :]]
    totals = [sum(counts[part] for counts in facts["classes"].values()) for part in facts["splits"]]
    return [*rows, [plural(len(facts["classes"]), "class", "classes"), *(f"{total:,}" for total in totals)]]
