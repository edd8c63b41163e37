"""What executors share: kept worker processes, the queue of waiting runs, the jobs of SLURM."""
