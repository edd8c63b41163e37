"""What --on takes, and what it says of mistakes."""

import pytest

from vitlab.cli import main
from vitlab.config import UserError
from vitlab.studies.plan.machine import FORM, Machine, parse_machine


def test_the_machine_is_what_the_words_say():
    assert parse_machine("gpu:64,memory=80,flops=989e12") == Machine(64, 80e9, 989e12)
    assert parse_machine("gpu:1,flops=312e12,utilisation=0.3,memory=40") == Machine(1, 40e9, 312e12, 0.3)


@pytest.mark.parametrize(
    ("words", "says"),
    [
        ("tpu:8,memory=80,flops=9e14", ["unknown kind 'tpu'; did you mean 'gpu'?"]),
        ("gpu:0,memory=80,flops=9e14", ["'0' is not a number of devices from 1 to 100,000"]),
        ("gpu,memory=80,flops=9e14", ["'' is not a number of devices"]),
        ("gpu:8,flops=9e14", ["memory is missing: gigabytes of a device, such as 80"]),
        ("gpu:8,memory=-80,flops=9e14", ["memory=-80: expected gigabytes of a device"]),
        ("gpu:8,memory=80,flops=989", ["flops=989: expected operations a second of a device at its peak"]),
        ("gpu:8,memory=nan,flops=9e14,utilisation=40", ["memory=nan", "utilisation=40: expected a share of that peak"]),
        ("gpu:8,memory=80,flops=9e14,memory=40", ["memory is given twice"]),
        ("gpu:8,memry=80", ["unknown key 'memry'; did you mean 'memory'?", "memory is missing", "flops is missing"]),
        ("", ["unknown kind ''", "memory is missing", "flops is missing"]),
    ],
)
def test_each_mistake_is_a_line_and_the_last_has_the_form(words, says):
    with pytest.raises(UserError) as caught:
        parse_machine(words)
    assert len(caught.value.problems) == len(says)
    for line, text in zip(caught.value.problems, says, strict=True):
        assert line.startswith(f"--on {words}: {text}")
    assert line.endswith(FORM), "once, in the last line"


def test_a_machine_is_for_a_dry_run(capsys):
    assert main(["scale", "--on", "gpu:8,memory=80,flops=9e14"]) == 2
    assert capsys.readouterr().err == "vitlab: --on gpu:8,memory=80,flops=9e14: is for --dry-run; give both\n"
