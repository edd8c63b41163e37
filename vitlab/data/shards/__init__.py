"""Tar shards as WebDataset has them: where they are, where each sample lies in them, and reading one by its number."""
