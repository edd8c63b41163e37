"""Decoded images and encoded texts on disk, and the fingerprints that say whether they are up to date."""
