"""The fast tier has fewer examples of each property: the settings of tests and of state machines really change."""

from collections.abc import Sequence
from types import SimpleNamespace
from typing import cast

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.support.examples import DIVISOR, LEAST, maybe_reduce

FULL = 40 * DIVISOR


class Machine:
    """A class of tests with settings of its own, as the test of a state machine has them."""

    settings = settings(max_examples=FULL)


def items_of(seen: list[int]) -> Sequence[pytest.Function]:
    """A property test with two parameters, which share its function, and the test of a state machine."""

    @settings(max_examples=FULL, database=None, deadline=None)
    @given(st.integers())
    def property_test(number: int) -> None:
        seen.append(number)

    functions = [SimpleNamespace(obj=property_test, cls=None) for _ in range(2)]
    return cast(Sequence[pytest.Function], [*functions, SimpleNamespace(obj=Machine.__init__, cls=type("One", (Machine,), {}))])


@pytest.mark.parametrize(("few", "expected"), [("", FULL), ("1", FULL // DIVISOR)])
def test_a_property_has_fewer_examples_only_where_that_is_asked_for(few: str, expected: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OTTLA_FEW_EXAMPLES", few) if few else monkeypatch.delenv("OTTLA_FEW_EXAMPLES", raising=False)
    seen: list[int] = []
    items = items_of(seen)
    maybe_reduce(items)
    items[0].obj()
    assert LEAST < expected == len(seen)
    assert cast(type[Machine], items[2].cls).settings.max_examples == expected
    assert Machine.settings.max_examples == FULL
