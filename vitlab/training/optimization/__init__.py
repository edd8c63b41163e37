"""Optimizers, the schedules of their rates, averages of weights, what stays frozen."""
