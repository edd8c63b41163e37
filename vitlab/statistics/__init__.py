"""Statistics of numbers: estimates, scaling laws, crossovers, surfaces. Reads no files, needs no torch."""
