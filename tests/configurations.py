"""Composing configurations, and what is wrong with them, for the tests."""

import pytest
import yaml

from vitlab.config import TrainConfig, UserError, compose, resolved


def train(*overrides, **base):
    return compose(TrainConfig, overrides, base=base)


def recipe(*overrides):
    return compose(TrainConfig, [f"recipe.{word}" for word in overrides]).recipe


def refused(call, *args, **kwargs):
    """The problems for which it raises UserError."""
    with pytest.raises(UserError) as caught:
        call(*args, **kwargs)
    found = caught.value.problems
    assert found
    assert len(found) == len(set(found)), "a problem is said once"
    for line in found:
        assert "\n" not in line, "a problem is one line"
        assert "Traceback" not in line
    return found


def problems(*overrides, schema=TrainConfig, **base):
    return refused(compose, schema, overrides, base=base)


def problem(*overrides, **kwargs):
    (line,) = problems(*overrides, **kwargs)
    return line


def roundtrip(config):
    """A configuration as it comes back from the file that a run leaves."""
    schema = type(config)
    return compose(schema, base=yaml.safe_load(yaml.safe_dump(resolved(config), sort_keys=False)))


def composed(compose_it):
    """Return its result, or None where it raised a well-formed UserError."""
    try:
        return compose_it()
    except UserError as error:
        found = error.problems
    assert found
    assert all(line and "\n" not in line for line in found)
    return None


def leaves(node, path=""):
    for key, value in node.items():
        if isinstance(value, dict):
            yield from leaves(value, f"{path}{key}.")
        else:
            yield f"{path}{key}", value
