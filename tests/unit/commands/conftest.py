import pytest
from PIL import Image


@pytest.fixture
def there(tmp_path):
    """The folder that a command is called in."""
    for name in ("empty", "folder.yaml", "mine", "photos/dog"):
        (tmp_path / name).mkdir(parents=True)
    (tmp_path / "mine" / "thesis.txt").write_text("years of work")
    (tmp_path / "file").touch()
    (tmp_path / "own.yaml").write_text("kind: mylab.spread\nexamples: 4\n")
    (tmp_path / "bais.yaml").write_text("kind: attention\nqkv_bais: 1\n")
    (tmp_path / "tion.yaml").write_text("kind: glyphs\nrotatoin: 1\n")
    (tmp_path / "deep.yaml").write_text("name: deep\nwidth: " + "[" * 100_000)
    Image.new("L", (16, 16)).save(tmp_path / "photos" / "dog" / "1.png")
    return tmp_path
