"""The share of a GPU's peak."""

import pytest

from vitlab.training.run import find_peak


@pytest.mark.parametrize(
    ("device", "precision", "peak"),
    [
        ("NVIDIA H100 80GB HBM3", "bf16-mixed", 989e12),
        ("NVIDIA H100 PCIe", "bf16-mixed", 756e12),
        ("NVIDIA A100-SXM4-80GB", "32-true", 156e12),
        ("NVIDIA L40S", "bf16-mixed", 362e12),
        ("NVIDIA L4", "bf16-mixed", 121e12),
        ("Tesla T4", "32-true", None),
        ("cpu", "bf16-mixed", None),
    ],
)
def test_the_peak_is_that_of_the_chip(device, precision, peak):
    assert find_peak(device, precision) == peak
