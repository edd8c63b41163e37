"""Training one run in this process."""

from vitlab.studies.claims import hold
from vitlab.studies.experiment import run_experiment


def train_run(config, folder, **options):
    """Train one run to its end in its folder, or complete the result that is there; return the result."""
    with hold(folder) as claim:
        return run_experiment(config, claim, **options)
