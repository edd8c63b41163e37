"""Data sets of text, one file each, and their shared parts: tables, tokenizers, the encoded corpus."""
