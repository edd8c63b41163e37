"""What executors share: kept worker processes, the jobs of SLURM."""
