"""Greedy decoding, sampling and beam search, against all continuations and one by one."""

import itertools

import pytest
import torch

from vitlab.models.decoding import beam_search

V, LENGTH, END, START = 5, 11, 2, 0


class Table:
    """A model whose next token depends on the source of a sequence and on all of its tokens."""

    def __init__(self, sources, seed=0):
        self.room, self.sources = LENGTH + 1, torch.as_tensor(sources)
        self.tokens = torch.zeros(len(sources), 0, dtype=torch.int64)
        self.seed = seed

    def __call__(self, tokens):
        self.tokens = torch.cat([self.tokens, tokens], dim=1)
        rows = zip(self.sources.tolist(), self.tokens.tolist(), strict=True)
        return torch.stack([self.logits((source, *row)) for source, row in rows])

    def logits(self, seen):
        generator = torch.Generator().manual_seed(hash((self.seed, *seen)) % 2**31)
        return 2 * torch.randn(V, generator=generator)

    def reorder(self, rows):
        self.sources, self.tokens = (part[rows.flatten()] for part in (self.sources, self.tokens))

    def score(self, source, tail, alpha):
        seen, total = (source, START), 0.0
        for token in tail:
            total += self.logits(seen).log_softmax(0)[token].item()
            seen += (token,)
        return total / ((5 + len(tail)) / 6) ** alpha


def start(rows):
    return torch.full((rows, 1), START)


def every_continuation(steps):
    others = [token for token in range(V) if token != END]
    for length in range(steps):
        yield from ((*body, END) for body in itertools.product(others, repeat=length))
    yield from itertools.product(others, repeat=steps)


@pytest.mark.parametrize("alpha", [0.0, 0.6, 3.0])
def test_a_search_with_all_beams_finds_the_best_of_all_continuations(alpha):
    sources, steps = [0, 1, 2, 14, 19, 22], 4  # in the last three a short one seems best for a while
    found = beam_search(Table(sources), start(6), steps, beams=V**3, end=END, length_penalty=alpha)
    for source, row in zip(sources, found, strict=True):
        best = max(every_continuation(steps), key=lambda tail: Table([source]).score(source, tail, alpha))
        assert row.tolist() == list(best)


@pytest.mark.parametrize("alpha", [0.0, 1.0])
@pytest.mark.parametrize("beams", [1, 2, 4])
def test_a_batch_is_searched_as_its_sequences_one_by_one(beams, alpha):
    sources, options = list(range(17)), {"beams": beams, "end": END, "length_penalty": alpha}
    together = beam_search(Table(sources), start(17), LENGTH, **options)
    alone = [beam_search(Table([source]), start(1), LENGTH, **options)[0] for source in sources]
    assert [row.tolist() for row in together] == [row.tolist() for row in alone]
    assert len({len(row) for row in together}) > 1
