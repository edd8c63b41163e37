"""A text from a text by an encoder-decoder (Vaswani et al., 2017)."""

from vitlab.config.schema import RecipeConfig, TaskConfig
from vitlab.config.schema.data import DataConfig
from vitlab.data.base import TextData
from vitlab.tasks.common.seq2seq import SequenceToSequence


def build(config: TaskConfig, *, recipe: RecipeConfig, data: TextData, data_config: DataConfig) -> SequenceToSequence:
    return SequenceToSequence(config, recipe, data, data_config)
