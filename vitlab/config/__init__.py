"""Configuration: dataclass schemas, YAML groups, overrides and checks. Imports no torch."""

from vitlab.config.checks import extent
from vitlab.config.compose import change, compose, parse_override, read_config, read_yaml, resolved
from vitlab.config.errors import UserError, choices_text, first_line, printable
from vitlab.config.groups import load, names
from vitlab.config.identity import identity
from vitlab.config.schema import DescribeConfig, StudyConfig, TrainConfig

__all__ = [
    "DescribeConfig",
    "StudyConfig",
    "TrainConfig",
    "UserError",
    "change",
    "choices_text",
    "compose",
    "extent",
    "first_line",
    "identity",
    "load",
    "names",
    "parse_override",
    "printable",
    "read_config",
    "read_yaml",
    "resolved",
]
