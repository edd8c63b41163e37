"""Data sets of text, one file each, and what they share: tables, tokenizers, the encoded corpus."""
