"""Figures as data: one module per kind of figure, drawn alike by each of the backends."""
