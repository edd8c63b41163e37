"""Python's own documentation: the chapters of the language reference, and each library module's docstrings in one."""

from vitlab.config.schema.data import TextDataConfig
from vitlab.data.split import choose_by_hash
from vitlab.data.text import stdlib
from vitlab.data.text.types import Corpus, Examples

BETWEEN = "\n\n"  # the docstrings of a module
fingerprint = stdlib.fingerprint


def read(config: TextDataConfig) -> Corpus:
    """One text a document; a share of the documents, chosen by their names, is held out. Raises UserError."""
    documents = {f"topic {name}": text for name, text in stdlib.read_topics().items()}
    modules: dict[str, list[str]] = {}
    for docstring in stdlib.read_docstrings():
        modules.setdefault(f"module {docstring.module}", []).append(docstring.text)
    documents |= {name: BETWEEN.join(texts) for name, texts in modules.items()}
    chosen = choose_by_hash(list(documents), config.test_share)
    return Corpus(
        Examples(([text for name, text in documents.items() if name not in chosen],)),
        Examples(([text for name, text in documents.items() if name in chosen],)),
    )
