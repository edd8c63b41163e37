"""A proposed study fits its time, composes, and has what its verdict needs."""

import pytest

from vitlab.config import UserError
from vitlab.config.plain_yaml import dump_yaml
from vitlab.studies import proposal
from vitlab.studies.grid import compose_models, compose_study
from vitlab.studies.plan.timing import Times

TIMES = {"vit_nano": Times(0.5, 0.05, 0.0002, 0.0002), "resnet_nano": Times(0.5, 0.08, 0.0003, 0.0003)}


@pytest.mark.parametrize("hours", [0.1, 0.5, 2, 24])
def test_the_level_fits_and_more_time_is_used(hours):
    level, seconds = proposal.choose_level(hours, TIMES, 100, 200, 2, 5000)
    assert seconds == proposal.estimate_seconds(level, TIMES, 100, 200, 2)
    assert seconds <= 0.8 * 3600 * hours
    thorough = [one for one in proposal.LEVELS if proposal.estimate_seconds(one, TIMES, 100, 200, 2) > 2880 * hours]
    assert proposal.LEVELS.index(level) == len(thorough)
    assert level.sizes >= 4, "a law needs four sizes"
    assert level.seeds >= 3, "an interval needs seeds"


def test_too_little_time_is_refused_with_what_would_do():
    with pytest.raises(UserError, match=r"--hours 0\.01: the smallest study takes about .*; give --hours 0\.\d+"):
        proposal.choose_level(0.01, TIMES, 100, 200, 1, 5000)


def test_few_pictures_have_fewer_sizes():
    level, _ = proposal.choose_level(1000, TIMES, 10, 20, 2, 400)
    assert level.sizes == 4


@pytest.mark.parametrize("families", [(), ("vit", "resnet")])
@pytest.mark.parametrize("level", [proposal.LEVELS[0], proposal.LEVELS[-1]], ids=["most", "least"])
def test_a_proposal_is_a_study(families, level, tmp_path):
    data = {"name": "imagetable", "root": "photos", "path": "pictures.csv", "holdout": "repeated", "image_size": 96}
    (tmp_path / "proposal.yaml").write_text(dump_yaml(proposal.compose_proposal("my photos!", data, families, level)))
    config = compose_study(str(tmp_path / "proposal.yaml"), [])
    runs = compose_models(config)
    assert config.name == "my_photos_"
    assert {"color_histogram", "vit_nano", "resnet_nano"} <= runs.keys()
    assert len(runs) == 3 + 2 * len(families)
    if families:
        assert runs["vit_ti16_frozen"].recipe.freeze == "body"
        assert runs["resnet18_finetuned"].init.weights == "timm:resnet18"
        assert config.probes == ["knn"]
    if level.rates > 1:
        rate = runs["vit_nano"].recipe.lr
        assert runs["vit_nano"].tune["recipe.lr"] == pytest.approx([0.3 * rate, rate, 3 * rate])


def test_the_image_size_follows_the_pictures_and_the_time():
    choose = proposal.choose_image_size
    assert [choose(160, hours, pretrained=False, gpu=False) for hours in (0.1, 1)] == [32, 48]
    assert choose(16, 1, pretrained=False, gpu=False) == 16
    assert choose(160, 0.1, pretrained=True, gpu=False) == 160
