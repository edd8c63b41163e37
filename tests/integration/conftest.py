import pytest
from PIL import Image

from tests.integration import commands


@pytest.fixture(autouse=True, scope="session")
def offline(private_home):
    """Nobody is logged in to W&B."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("WANDB_MODE", "offline")
        commands.serve()
        yield


@pytest.fixture(scope="session")
def finished(made_once):
    """A finished run of some accuracy, with W&B offline: commands.FINISHED. No test changes it."""
    return made_once("finished", lambda folder: commands.succeed("train", *commands.FINISHED, "--out", folder))


@pytest.fixture
def photos(tmp_path):
    """A folder of real image files, 14 of each of two classes, that a model can tell apart."""
    root = tmp_path / "photos"
    for name, colour in (("dusk", (200, 60, 30)), ("sea", (20, 80, 190))):
        (root / name).mkdir(parents=True)
        for i in range(14):
            shade = tuple(min(255, c + 5 * i) for c in colour)
            Image.new("RGB", (61 + i, 53), shade).save(root / name / f"{i}.{'jpg' if i % 2 else 'png'}")
    return root
