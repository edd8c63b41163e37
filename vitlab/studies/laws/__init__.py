"""Scaling laws: fits of error against training-set size, where two of them cross, and the runs that would tell more."""
