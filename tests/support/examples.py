"""Runs property tests with fewer examples if OTTLA_FEW_EXAMPLES is set, as `.ci/run`, `make test-fast` and `make test-pure` do."""

import os
from collections.abc import Sequence

import pytest
from hypothesis import settings

DIVISOR = 8
LEAST = 10
"""A test has at least this number of examples, unless it asks for fewer itself."""


def maybe_reduce(items: Sequence[pytest.Function]) -> None:
    """Reduce the examples of the property tests among these. Parameters of a test share its settings, so they count once.

    The test of a state machine has its settings in its class.
    """
    if "OTTLA_FEW_EXAMPLES" not in os.environ:
        return
    machines = {item.cls for item in items if isinstance(getattr(item.cls, "settings", None), settings)}
    for machine in machines:
        machine.settings = few(machine.settings)
    for function in {getattr(item.obj, "__func__", item.obj) for item in items if item.cls not in machines}:
        if getattr(function, "is_hypothesis_test", False):
            function._hypothesis_internal_use_settings = few(function._hypothesis_internal_use_settings)


def number_of(full: int) -> int:
    """The number of random examples of a test without hypothesis: a quarter of them where few are asked for."""
    return full // 4 if "OTTLA_FEW_EXAMPLES" in os.environ else full


def few(full: settings) -> settings:
    """The settings with a part of their examples."""
    count = full.max_examples
    return full if count <= LEAST else settings(full, max_examples=max(LEAST, count // DIVISOR))
