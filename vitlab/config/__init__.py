"""Configuration: dataclass schemas, YAML groups, overrides and checks. Imports no torch."""

from vitlab.config.checks import extent
from vitlab.config.compose import compose, differences, identity, parse_override, read_yaml, resolved, without
from vitlab.config.errors import UserError, choices_text, first_line, printable
from vitlab.config.groups import load, names
from vitlab.config.schema import DescribeConfig, StudyConfig, TrainConfig

__all__ = [
    "DescribeConfig",
    "StudyConfig",
    "TrainConfig",
    "UserError",
    "choices_text",
    "compose",
    "differences",
    "extent",
    "first_line",
    "identity",
    "load",
    "names",
    "parse_override",
    "printable",
    "read_yaml",
    "resolved",
    "without",
]
