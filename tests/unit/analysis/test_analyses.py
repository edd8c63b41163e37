"""What every analysis keeps to: it says where it applies, and gives plain rows or finite arrays there."""

import json

import numpy as np
import pytest
import torch

from tests.learning import randomized
from vitlab import analysis
from vitlab.analysis.capture import Findings
from vitlab.config import load, names
from vitlab.models import build_model

SHIPPED = {load("analysis", name).kind: load("analysis", name) for name in names("analysis")}
ANALYSES = {kind: analysis.module_of(config) for kind, config in SHIPPED.items()}
SIZE, B = (10, 20), 7
VIT = {"depth": 2, "width": 33, "heads": 3, "patch_size": 5}
TIMM = {"options": {"depth": 2, "embed_dim": 33, "num_heads": 3, "patch_size": 5}}
MODELS = {
    "ViT with a class token": ("vit_nano", {**VIT, "pool": "token", "registers": 2}, set()),
    "ViT": ("vit_nano", VIT, set()),
    "timm's ViT": ("timm:vit_tiny_patch16_224", TIMM, set()),
    "MLP-Mixer": ("mixer_nano", {"patch_size": 5}, {"attention", "position_similarity"}),
    "ResNet": ("resnet_nano", {}, {"attention", "position_similarity"}),
    "timm's ResNet": ("timm:resnet18", {}, {"attention", "position_similarity"}),
}
NOT_OF_IMAGES = {"alignment", "head_patterns", "token_reach"}
OF_ATTENTION = {"attention_distance", "attention_entropy", "head_types", "attention_maps", "rollout"}


def model(name, changes):
    return randomized(build_model(name, image_size=SIZE, num_classes=3, **changes), 0.2).train()


@pytest.mark.parametrize("name", ANALYSES)
@pytest.mark.parametrize("case", MODELS.values(), ids=MODELS)
def test_an_analysis_gives_rows_or_arrays_where_it_applies(case, name):
    made, module = model(*case[:2]), ANALYSES[name]
    lacks = NOT_OF_IMAGES | case[2] | (OF_ATTENTION if "attention" in case[2] else set())
    assert module.applies(made) == (name not in lacks)
    if name in lacks:
        return
    found = module.run(made, torch.randn(B, 3, *SIZE), SHIPPED[name])
    assert found, "an analysis never comes back empty"
    findings = Findings.of(found, name=name, unit=module.UNIT)
    for value in findings.arrays.values():
        assert isinstance(value, np.ndarray)
        assert value.size
        assert np.isfinite(value).all()
    assert json.loads(json.dumps(findings.to_dict())) == findings.to_dict()
    assert all("value" in row for row in findings.rows)
    assert made.training, "the model is left as it was"
    assert not any(part._forward_hooks or part._forward_pre_hooks for part in made.modules())
