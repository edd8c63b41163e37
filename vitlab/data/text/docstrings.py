"""Two tasks from the docstrings of Python's library: which package one is of, and whether a summary fits a body.

- Packages: the classes are the `classes` top-level modules and packages with the most docstrings. The text is the
  docstring as it stands, the package's name included where it says it. Texts that stand in more than one package
  are left out.
- `pairs`: a one-line summary and the rest of a docstring, its own or another one's, half and half. Each summary and
  each body comes once, and a body stays within the split of its docstring, so neither tells the label by itself.

No text is in both splits; those of one module are alike all the same, so held-out figures are of known modules.
"""

from collections import Counter

from vitlab.config import UserError
from vitlab.config.schema.data import TextDataConfig
from vitlab.data.split import choose_by_hash
from vitlab.data.text import stdlib
from vitlab.data.text.types import Corpus, Examples

LEAST = 4  # words of a text
ANSWERS = ("other", "own")  # the classes of a pair: whose the body is
fingerprint = stdlib.fingerprint


def read(config: TextDataConfig) -> Corpus:
    """The texts or pairs, with a share of each class held out by a hash of the texts. Raises UserError."""
    return read_pairs(config.test_share) if config.pairs else read_packages(config.classes, config.test_share)


def read_packages(count: int, share: float) -> Corpus:
    of: dict[str, set[str]] = {}
    for docstring in stdlib.read_docstrings(unique=False):
        if len(docstring.text.split()) >= LEAST:
            of.setdefault(docstring.text, set()).add(docstring.package)
    single = {text: next(iter(packages)) for text, packages in of.items() if len(packages) == 1}
    sizes = Counter(single.values())
    if not 2 <= count <= len(sizes):
        raise UserError(f"data.classes={count}: give from 2 to {len(sizes)}, the packages that have docstrings")
    classes = tuple(sorted(sorted(sizes, key=lambda name: (-sizes[name], name))[:count]))
    train: tuple[list[str], list[int]] = ([], [])
    test: tuple[list[str], list[int]] = ([], [])
    for label, name in enumerate(classes):
        texts = [text for text, package in single.items() if package == name]
        chosen = choose_by_hash(texts, share)
        for text in texts:
            into = test if text in chosen else train
            into[0].append(text)
            into[1].append(label)
    return Corpus(Examples((train[0],), labels=train[1]), Examples((test[0],), labels=test[1]), classes)


def read_pairs(share: float) -> Corpus:
    body_of = collect_summaries()
    chosen = choose_by_hash(list(body_of), share)
    train = {summary: body for summary, body in body_of.items() if summary not in chosen}
    test = {summary: body for summary, body in body_of.items() if summary in chosen}
    return Corpus(mix_pairs(train), mix_pairs(test), ANSWERS)


def collect_summaries() -> dict[str, str]:
    """The rest of each docstring by its one-line summary; each summary and each body once, none of a few words."""
    body_of: dict[str, str] = {}
    bodies: set[str] = set()
    for docstring in stdlib.read_docstrings():
        summary, _, body = (part.strip() for part in docstring.text.partition("\n\n"))
        long = len(summary.split()) >= LEAST and len(body.split()) >= LEAST
        if long and "\n" not in summary and summary not in body_of and body not in bodies:
            body_of[summary] = body
            bodies.add(body)
    return body_of


def mix_pairs(pairs: dict[str, str]) -> Examples:
    """Half of the pairs, by a hash of their summaries, with bodies moved on by one among them."""
    moved = choose_by_hash(list(pairs), 0.5, seed=1)
    others = [body for summary, body in pairs.items() if summary in moved]
    turned = iter(others[1:] + others[:1])
    bodies = [next(turned) if summary in moved else body for summary, body in pairs.items()]
    return Examples((list(pairs), bodies), labels=[int(summary not in moved) for summary in pairs])
