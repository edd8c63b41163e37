"""Weights & Biases: the runs as they train, their upload, and the dashboards of a study."""
