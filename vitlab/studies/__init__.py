"""Studies: the grid of runs, one experiment and the workers that run many, their files, and what their results say."""
