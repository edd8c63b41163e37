"""docs/analyses.md: a section per analysis, with its pictures and commands that the program takes."""

import re
from pathlib import Path

import pytest
from PIL import Image

from scripts import make as script
from tests.conftest import ROOT
from vitlab.config import names

PAGE = (ROOT / "docs" / "analyses.md").read_text()
SECTIONS = {part.partition("\n")[0].strip("` "): part for part in re.split(r"^## ", PAGE, flags=re.MULTILINE)[1:]}
PICTURES = re.findall(r'src="(analyses/[^"]+)"|\]\((analyses/[^)]+)\)', PAGE)


@pytest.mark.parametrize("name", names("analysis"))
def test_every_analysis_has_a_section_with_source_command_and_picture(name):
    section = SECTIONS[name]
    assert re.search(r"(19|20)\d\d", section), "its source"
    assert re.search(rf"vitlab analyze .*\b{name}\b", section)
    assert "analyses/" in section


def test_every_picture_is_there_once_small_and_from_the_script():
    linked = [first or second for first, second in PICTURES]
    assert len(linked) == len(set(linked))
    assert {Path(path).stem for path in linked} == {*script.SOURCES, *script.PAGES}
    sizes = [(ROOT / "docs" / path).stat().st_size for path in linked]
    assert max(sizes) <= 300_000
    assert sum(sizes) <= 2_000_000
    for path in linked:
        with Image.open(ROOT / "docs" / path) as image:
            image.load()
            assert image.width > 300


def test_the_commands_of_the_page_are_those_of_the_script_and_name_analyses():
    block = re.search(r"```\n(vitlab scale.*?)```", PAGE, re.DOTALL)[1]
    assert [line.removeprefix("vitlab ") for line in block.splitlines()] == list(script.COMMANDS)
    for _, _, *words in (command.split() for command in script.COMMANDS if command.startswith("analyze ")):
        chosen = words[: words.index("--out") if "--out" in words else None]
        assert {word.partition(".")[0] for word in chosen} <= set(names("analysis"))
