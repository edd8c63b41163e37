"""Advice on pictures: which classifier or network to take, and what more labels would bring."""
