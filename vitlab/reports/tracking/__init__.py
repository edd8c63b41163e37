"""Weights & Biases: the runs as they train, their upload, and the dashboards of a study."""

STEP = "trainer/global_step"  # the training step in W&B's rows, as Lightning's logger names it
