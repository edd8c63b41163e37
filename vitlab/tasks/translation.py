"""A text from a text by an encoder-decoder (Vaswani et al., 2017)."""

from omegaconf import DictConfig

from vitlab.data.text.types import TextData
from vitlab.tasks.common.seq2seq import SequenceToSequence


def build(config: DictConfig, *, recipe: DictConfig, data: TextData, data_config: DictConfig) -> SequenceToSequence:
    return SequenceToSequence(config, recipe, data, data_config)
