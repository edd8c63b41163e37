"""`vitlab data`: what it prints, the page it writes, and mistakes."""

import json
import os

import pytest
from PIL import Image

from tests.unit.commands.test_cli_light import run_elsewhere
from tests.unit.data.drawn import copy, draw_many, encode, put
from tests.unit.reports.chromium import Browser
from tests.unit.reports.html_page import Page
from vitlab.cli import main

EVIL = "<script>alert(1)<"  # the name of a class


@pytest.fixture
def folder(tmp_path):
    """Three classes of five pictures and test/ of one each: a copy, a phone's picture, a file that is broken."""
    images = draw_many("crop", 15)
    for place, image in enumerate(images):
        label = (EVIL, "dog", "[red]")[place // 5]
        put(tmp_path / "photos" / "train" / label / f"{place}.jpg", encode(image))
        if place % 5 == 0:
            put(tmp_path / "photos" / "test" / label / f"{place}.jpg", copy(image, "encoded"))
    (tmp_path / "photos" / "train" / "dog" / "<b>.png").touch()
    exif = Image.Exif()
    exif[0x0112] = 6
    Image.new("L", (64, 48), "white").save(tmp_path / "photos" / "train" / "dog" / "phone.jpg", exif=exif)
    return tmp_path / "photos"


def test_what_is_printed(folder, capsys):
    assert main(["data", str(folder)]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].split() == ["class", "train", "test"]
    assert lines[1].split() == ["dog", "6", "1"], "the largest first"
    assert any(line.split() == [EVIL, "5", "1"] for line in lines)
    few = next(line for line in lines if line.startswith("few: "))
    assert few.startswith("few: 3 of 3 classes with fewer than 10 training pictures: ")
    assert f"{EVIL} 5, " in few
    assert "dog 6; add pictures or merge classes" in few
    assert "stored turned (EXIF orientation): 1 picture, turned upright when read" in lines
    assert "  train/dog/<b>.png: the file is empty; replace or delete it" in lines
    assert "pictures that look like another one: 3 (3 across splits)" in lines
    assert "  test/dog/5.jpg = train/dog/5.jpg  another split" in lines
    assert lines[-1].startswith("suggested: data.image_size=")


@pytest.mark.parametrize(("count", "listed"), [(22, 22), (40, 40), (41, 20)])
def test_many_classes_are_cut_short(count, listed, tmp_path, capsys):
    for place, image in enumerate(draw_many("shape", 2 * count)):
        put(tmp_path / f"class{place // 2:02d}" / f"{place}.jpg", encode(image))
    assert main(["data", str(tmp_path)]) == 0
    out = capsys.readouterr().out
    assert sum(line.startswith("class") for line in out.splitlines()[1:]) == listed
    assert ("... 21 classes more ..." in out) == (count == 41)
    assert "split: none: no train/ with val/ or test/" in out
    few = f"few: {count} of {count} classes with fewer than 10 pictures, before a share of them is held out: class00 2"
    assert few in out


def test_json_and_page_hold_the_same(folder, tmp_path, capsys):
    out = tmp_path / "look"
    assert main(["data", str(folder), "--out", str(out), "--json"]) == 0
    facts = json.loads(capsys.readouterr().out)
    assert facts == json.loads((out / "data.json").read_text())
    text = (out / "data.html").read_text()
    page = Page(text)
    assert len(page.scripts) == 3, "the theme, its button and their data; none of a user's"
    assert f"train/{EVIL}/0.jpg" in page.text
    assert "<b>.png" in page.text
    sources = [image["src"] for image in page.all("img")]
    assert len(sources) == 5 + 5 + 6 + 2 * 3
    assert all(source.startswith("data:image/jpeg;base64,") for source in sources)
    assert facts["rotated"] == 1
    assert len(text) < 200_000


def test_the_page_in_a_browser(folder, tmp_path, chromium):
    assert main(["data", str(folder), "--out", str(tmp_path / "look")]) == 0
    browser = Browser(chromium)
    for width in (1200, 400):
        browser.open(tmp_path / "look" / "data.html", width=width)
        browser.assert_quiet()
        assert browser.run("document.documentElement.scrollWidth") <= width
        assert browser.run("[...document.images].every((image) => image.loading === 'lazy' || image.complete)")
    shown = browser.run("[...document.querySelectorAll('.figures figcaption')].map((caption) => caption.innerText)")
    assert shown[-1].splitlines()[-1] == "another split"


def test_neither_torch_nor_what_draws_charts_is_imported(folder):
    _, modules = run_elsewhere([["data", str(folder), "--out", str(folder.parent / "look")]], folder)
    assert "vitlab.reports.pages.data_look" in modules
    assert not {"torch", "altair", "vl_convert", "sklearn", "scipy"} & modules


def test_a_name_with_a_line_break_is_one_line_and_a_pipe_is_counted(folder, capsys):
    (folder / "train" / "dog").rename(folder / "train" / "do\ng")
    (folder / "test" / "dog").rename(folder / "test" / "do\ng")
    (folder / "train" / "em\npty").mkdir()
    os.mkfifo(folder / "train" / "[red]" / "pipe.png")
    assert main(["data", str(folder), "--out", str(folder.parent / "look")]) == 0
    assert "class 'em\\npty' has no images" in Page((folder.parent / "look" / "data.html").read_text()).text
    out = capsys.readouterr().out
    assert any(line.split()[1:] == ["6", "1"] and line.startswith("do") for line in out.splitlines())
    assert "skipped pipes, sockets and devices: 1: train/[red]/pipe.png" in out
