"""Uses a table as a dict, from a few entries to more than one dict should hold."""

from __future__ import annotations

import pytest

from ottla.large_table import PARTS, SPLIT_AT, LargeTable

SIZES = (0, 1, SPLIT_AT, SPLIT_AT + 1, 3 * SPLIT_AT)


def a_table(size: int) -> LargeTable[str, int]:
    table: LargeTable[str, int] = LargeTable()
    for number in range(size):
        table[f"id-{number}"] = number
    return table


@pytest.mark.parametrize("size", SIZES)
def test_a_table_has_what_was_put_in_and_no_more(size: int) -> None:
    table = a_table(size)
    assert len(table) == size
    assert dict(table) == {f"id-{number}": number for number in range(size)}
    assert sorted(table.each()) == list(range(size))
    assert table.get(f"id-{size}") is None
    assert table.get(f"id-{size}", -1) == -1
    with pytest.raises(KeyError):
        del table[f"id-{size}"]


@pytest.mark.parametrize("size", SIZES[1:])
def test_an_entry_is_replaced_and_removed(size: int) -> None:
    table = a_table(size)
    table["id-0"] = 77
    assert (len(table), table["id-0"]) == (size, 77)
    assert table.pop("id-0", None) == 77
    assert table.pop("id-0", None) is None
    assert ("id-0" in table, len(table)) == (False, size - 1)


def test_a_small_table_keeps_the_order_of_insertion() -> None:
    assert list(a_table(SPLIT_AT).each()) == list(range(SPLIT_AT))


def test_the_entries_of_a_large_table_are_spread_over_its_parts() -> None:
    size = 8 * SPLIT_AT
    sizes = [len(part) for part in a_table(size)._parts]
    assert len(sizes) == PARTS
    assert max(sizes) < 2 * size / PARTS


@pytest.mark.slow
@pytest.mark.parametrize("size", SIZES)
def test_draining_takes_every_entry_out_once(size: int) -> None:
    table = a_table(size)
    found = []
    for number, (key, value) in enumerate(table.drain(), 1):
        found.append(value)
        assert key not in table
        assert len(table) == size - number
    assert sorted(found) == list(range(size))


def test_values_are_iterated_over_while_the_table_changes_and_becomes_large() -> None:
    table = a_table(SPLIT_AT)
    found = []
    for value in table.each():
        found.append(value)
        table[f"more-{value}"] = value
        if value:
            del table[f"id-{value - 1}"]
    assert found == list(range(SPLIT_AT))
    assert len(table) == SPLIT_AT + 1
