"""One run, from a configuration to a result: the LightningModule, optimizers, schedules, the loop, files."""
