"""A short text of a long one: by an encoder-decoder, or by a language model that reads both as one sequence."""

from torchmetrics import MetricCollection

from vitlab.config.schema import RecipeConfig, TaskConfig
from vitlab.config.schema.data import DataConfig
from vitlab.data.base import TextData
from vitlab.tasks.common.decoded import Decoded, Score, score_summaries
from vitlab.tasks.common.one_sequence import OneSequence
from vitlab.tasks.common.seq2seq import SequenceToSequence, SourceTargetBatch

SAMPLE = 2000  # training summaries whose words are counted


class Summarization(SequenceToSequence):
    def __init__(self, config: TaskConfig, recipe: RecipeConfig, data: TextData, data_config: DataConfig):
        super().__init__(config, recipe, data, data_config)
        summaries = data.train.parts[1]
        counted = range(0, len(summaries), -(-len(summaries) // SAMPLE))
        self.words = round(sum(len(data.tokenizer.decode(summaries[row]).split()) for row in counted) / len(counted))

    @property
    def scores(self) -> tuple[Score, ...]:
        return (score_summaries,)

    def metrics(self, detailed: bool = False) -> MetricCollection:
        """Those of `SequenceToSequence`; `detailed` adds rouge1_lead, rouge2_lead, rouge_l_lead.

        They are of the lead baseline: the first words of each text, as many as a training summary has in the mean.
        """
        metrics = super().metrics(detailed)
        if detailed:
            metrics.add_metrics({"lead": Decoded(score_summaries, suffix="_lead")})
        return metrics

    def compare_texts(
        self, metrics: MetricCollection, batch: SourceTargetBatch, written: list[str], wanted: list[str]
    ) -> None:
        super().compare_texts(metrics, batch, written, wanted)
        metrics["lead"].update([" ".join(text.split()[: self.words]) for text in self.describe_sources(batch)], wanted)


class SummarizationInOneSequence(Summarization, OneSequence):
    """By a language model."""


def build(config: TaskConfig, *, recipe: RecipeConfig, data: TextData, data_config: DataConfig) -> Summarization:
    kind = SummarizationInOneSequence if config.one_sequence else Summarization
    return kind(config, recipe, data, data_config)
