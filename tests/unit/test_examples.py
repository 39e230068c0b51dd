"""Some runs have fewer examples of each property: the settings of tests and of state machines really change."""

from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any, cast

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, rule

from tests.support.examples import DIVISOR, LEAST, maybe_reduce

FULL = 40 * DIVISOR


def items_of(seen: list[int]) -> Sequence[Any]:
    """A property test with two parameters, which share its function, and the test of a state machine."""

    @settings(max_examples=FULL, database=None, deadline=None)
    @given(st.integers())
    def property_test(number: int) -> None:
        seen.append(number)

    class Machine(RuleBasedStateMachine):
        @rule()
        def step(self) -> None:
            pass

    case = Machine.TestCase
    case.settings = settings(max_examples=FULL)
    functions = [SimpleNamespace(obj=property_test, cls=None) for _ in range(2)]
    return [*functions, SimpleNamespace(obj=case().runTest, cls=case)]


@pytest.mark.parametrize(("few", "expected"), [("", FULL), ("1", FULL // DIVISOR)])
def test_a_property_has_fewer_examples_only_where_that_is_asked_for(few: str, expected: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OTTLA_FEW_EXAMPLES", few) if few else monkeypatch.delenv("OTTLA_FEW_EXAMPLES", raising=False)
    seen: list[int] = []
    items = items_of(seen)
    maybe_reduce(cast(Sequence[pytest.Function], items))
    items[0].obj()
    assert LEAST < expected == len(seen)
    assert items[2].cls.settings.max_examples == expected
