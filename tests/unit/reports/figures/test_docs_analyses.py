"""docs/analyses.md: a section per analysis, with its pictures and commands that the program takes."""

import re

import pytest

from tests.conftest import ROOT
from vitlab.config import names

PAGE = (ROOT / "docs" / "analyses.md").read_text()
SECTIONS = {part.partition("\n")[0].strip("` "): part for part in re.split(r"^## ", PAGE, flags=re.MULTILINE)[1:]}


@pytest.mark.parametrize("name", names("analysis"))
def test_every_analysis_has_a_section_with_source_command_and_picture(name):
    section = SECTIONS[name]
    assert re.search(r"(19|20)\d\d", section), "its source"
    assert re.search(rf"vitlab analyze .*\b{name}\b", section)
    assert re.search(r"(analyses|pretrained)/\w+", section)
