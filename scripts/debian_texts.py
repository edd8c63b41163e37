"""Write texts of Debian's package descriptions for experiments: pairs of languages, English, and labeled sections.

    python scripts/debian_texts.py FOLDER --languages it fr de

FOLDER/pairs-en-it.tsv has paragraphs of 3 to 40 words in two languages (columns en, it, source), english.txt a
description a line with blank lines between (data.split_on=blank_line), sections.csv text, section and source: texts of
one source package are near copies and belong on one side. Needs Debian's or Ubuntu's apt, which downloads 25 to 35 MB
of lists into FOLDER/lists and installs nothing.
"""

import argparse
import csv
import re
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

FEWEST, MOST = 3, 40  # words of a paragraph


def read_stanzas(lists: Path, pattern: str) -> Iterator[dict[str, str]]:
    """Yield the fields of each stanza of apt's lists; lines of a field that goes on keep their newlines."""
    for path in sorted(lists.glob(pattern)):
        text = subprocess.run(["/usr/lib/apt/apt-helper", "cat-file", path], check=True, capture_output=True).stdout
        for stanza in text.decode().split("\n\n"):
            yield dict(re.findall(r"^([\w-]+):[ ]?(.*(?:\n .*)*)", stanza, re.MULTILINE))


def split_paragraphs(description: str) -> list[str]:
    """Split a description at its lines " ."; the first paragraph is its title."""
    title, _, body = description.partition("\n")
    return [" ".join(part.split()) for part in [title, *re.split(r"^ \.$", body, flags=re.MULTILINE)]]


def fits(paragraph: str) -> bool:
    return FEWEST <= len(paragraph.split()) <= MOST


def write_rows(path: Path, rows: list[tuple[str, ...]], delimiter: str = ",") -> None:
    with path.open("w", newline="", encoding="utf-8") as file:
        if delimiter == "\t":  # quotes are characters like others
            file.writelines("\t".join(row) + "\n" for row in rows)
        else:
            csv.writer(file, lineterminator="\n").writerows(rows)
    print(f"{path}: {len(rows) - 1:,} rows")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--languages", nargs="+", default=["it", "fr", "de"])
    args = parser.parse_args()
    if not shutil.which("apt-get"):
        parser.exit(2, "debian_texts: needs apt-get of Debian or Ubuntu\n")
    lists = args.folder.resolve() / "lists"
    (lists / "partial").mkdir(parents=True, exist_ok=True)
    languages = ",".join(["en", *args.languages])
    options = ["-o", f"Dir::State::lists={lists}", "-o", f"Acquire::Languages={languages}"]
    subprocess.run(["apt-get", "-q", *options, "update"], check=True)

    stanzas = read_stanzas(lists, "*_Translation-en*")
    english = {one["Description-md5"]: one["Description-en"] for one in stanzas if "Description-en" in one}
    packages = [one for one in read_stanzas(lists, "*_Packages*") if one.get("Description-md5") in english]
    sources = {one["Description-md5"]: one.get("Source", one["Package"]).partition(" ")[0] for one in packages}
    for language in args.languages:
        pairs: dict[tuple[str, str], str] = {}
        for one in read_stanzas(lists, f"*_Translation-{language}*"):
            key = one.get("Description-md5", "")
            ours = split_paragraphs(english.get(key, ""))
            theirs = split_paragraphs(one.get(f"Description-{language}", ""))
            if len(ours) == len(theirs):
                for pair in zip(ours, theirs, strict=True):
                    if all(map(fits, pair)):
                        pairs.setdefault(pair, sources.get(key, one.get("Package", "")))
        rows = [(*pair, source) for pair, source in pairs.items()]
        write_rows(args.folder / f"pairs-en-{language}.tsv", [("en", language, "source"), *rows], "\t")

    texts = {key: " ".join(split_paragraphs(text)) for key, text in english.items()}
    (args.folder / "english.txt").write_text("\n\n".join(dict.fromkeys(texts.values())) + "\n", encoding="utf-8")
    labeled: dict[str, tuple[str, str, str]] = {}
    for one in packages:
        key, section = one["Description-md5"], one["Section"].rpartition("/")[2]
        labeled.setdefault(texts[key], (texts[key], section, sources[key]))
    write_rows(args.folder / "sections.csv", [("text", "section", "source"), *labeled.values()])


if __name__ == "__main__":
    main()
