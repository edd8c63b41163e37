"""Docstrings of Python's library: the body is the source, the summary line above it the target.

No summary and no body is in two splits; those of one module are alike all the same, so held-out figures are of known
modules.
"""

from vitlab.config.schema.data import TextDataConfig
from vitlab.data.split import choose_by_hash
from vitlab.data.text import stdlib
from vitlab.data.text.docstrings import collect_summaries
from vitlab.data.text.types import Corpus, Examples

fingerprint = stdlib.fingerprint


def read(config: TextDataConfig) -> Corpus:
    """Pairs (body, summary); a share of them, chosen by their summaries, is held out. Raises UserError."""
    body_of = collect_summaries()
    chosen = choose_by_hash(list(body_of), config.test_share)
    splits = ([summary for summary in body_of if (summary in chosen) is held] for held in (False, True))
    return Corpus(*(Examples(([body_of[summary] for summary in split], split)) for split in splits))
