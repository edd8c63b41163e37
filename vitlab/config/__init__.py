"""Configuration: dataclass schemas, YAML groups, overrides and checks. Imports no torch."""

from vitlab.config.checks import extent
from vitlab.config.compose import change, compose, parse_override, read_config, read_yaml, resolved
from vitlab.config.errors import UserError, choices_text, collecting, first_line, printable, raise_all, to_text
from vitlab.config.groups import load, names
from vitlab.config.identity import identity
from vitlab.config.schema import DescribeConfig, StudyConfig, TrainConfig
