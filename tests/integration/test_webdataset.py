"""A run on tar shards that is stopped and goes on."""

import io
from collections import Counter

import numpy as np
import pytest
from PIL import Image

from tests.runs import train_run
from vitlab.config import TrainConfig, compose
from vitlab.training.loop import Interrupted
from vitlab.training.module import TrainingModule

webdataset = pytest.importorskip("webdataset")
SAMPLES, BATCH = 60, 8


@pytest.fixture
def shards(tmp_path):
    """12 samples a shard; each is a class of its own, so a step's targets say which ones it saw."""
    with webdataset.ShardWriter(f"{tmp_path}/%d.tar", maxcount=12, verbose=0) as writer:
        for k in range(SAMPLES):
            file = io.BytesIO()
            Image.new("RGB", (12, 12), (k, k, k)).save(file, "PNG")
            writer.write({"__key__": f"{k:03d}", "png": file.getvalue(), "cls": k})
    return f"{tmp_path}/{{0..4}}.tar"


def test_every_sample_is_seen_once_an_epoch_also_of_a_run_that_was_stopped(shards, tmp_path, monkeypatch):
    seen = {}
    step = TrainingModule.training_step

    def count(self, batch, batch_idx):
        seen[self.global_step] = batch[1].tolist()
        return step(self, batch, batch_idx)

    monkeypatch.setattr(TrainingModule, "training_step", count)
    words = ["data=webdataset", f"data.train={shards}", f"data.test={shards}", f"data.validation={shards}"]
    words += ["data.image_size=12", "data.cache=never", f"recipe.batch_size={BATCH}", "budget.epochs=2"]
    words += ["analyses=[]", "wandb.mode=off", "trainer.threads=1", "trainer.evaluations=1", "train_size=all"]
    for stop, workers in ((4, 0), (9, 2), (None, 1)):
        config = compose(TrainConfig, [*words, f"trainer.workers={workers}"])
        if stop:
            with pytest.raises(Interrupted):
                train_run(config, tmp_path / "run", stop=lambda stop=stop: len(seen) >= stop)
        else:
            result = train_run(config, tmp_path / "run")
    assert result["train_items"] == SAMPLES
    stream = np.concatenate([seen[step] for step in range(result["steps"])])
    assert len(stream) == 2 * SAMPLES
    for epoch in stream.reshape(2, SAMPLES):
        assert set(Counter(epoch.tolist()).values()) == {1}
        assert len(set(epoch.tolist())) == SAMPLES
