"""Data sets of text, one file each, and their shared parts: tables, tokenizers, the encoded corpus."""

NO_TAG = -100  # of a token that carries no tag, as torch's cross-entropy ignores it
