"""`vitlab data`: what it prints, the page it writes, and mistakes."""

import json
import os

import pytest
from PIL import Image

from tests.unit.commands.test_cli_light import run_elsewhere
from tests.unit.data.drawn import copy, draw_many, encode, put
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
    assert any(line.startswith("mirrored: ") and "data.augment.flip=false" in line for line in lines)
    assert "  train/dog/<b>.png: the file is empty; replace or delete it" in lines
    assert "pictures that look like another one: 3 (3 across splits)" in lines
    assert "  test/dog/5.jpg = train/dog/5.jpg  another split" in lines
    assert lines[-1].startswith("suggested: data.image_size=")


def test_a_table_of_pictures_is_looked_at_as_a_folder_is(folder, tmp_path, capsys):
    (folder / "train" / "dog" / "<b>.png").unlink()
    rows = [(path, path.relative_to(folder).parts) for path in sorted(folder.rglob("*.jpg"))]
    lines = [f'"{"/".join(parts)}","{parts[1]}",{parts[0]}' for _, parts in rows]
    (tmp_path / "table.csv").write_text("\n".join(["file,label,part", *lines]))
    words = ["data=imagetable", f"data.root={folder}", f"data.path={tmp_path / 'table.csv'}", "data.split=part"]
    documents = []
    for name, given in (("one", [str(folder)]), ("two", words)):
        assert main(["data", *given, "--json", "--out", str(tmp_path / name)]) == 0
        documents.append(json.loads(capsys.readouterr().out))
    assert documents[0] == documents[1]


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
