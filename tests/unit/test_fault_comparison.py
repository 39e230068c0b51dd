"""The comparison of two kinds of brokers says who recovers later, and does not take noise or a missing turn for it."""

from tests.support.fault_cells import Cell
from tests.support.fault_comparison import Sides, Turn, cell_table, group_table, markdown, plain

KILL, CUT, STOP = Cell("kill", "leader"), Cell("cut", "leader", "1"), Cell("stop", "leader", "all", "embedded")


def a_turn(produce: float, consume: float = 1.0, whole: float = 1.0, **found: int) -> Turn:
    return Turn((produce, consume, whole), found)


def two_kinds() -> Sides:
    sides = Sides(["ottla", "apache"])
    for ours, theirs in ((2.0, 3.0), (4.0, 3.0), (9.0, 3.0)):
        sides.add(KILL, "ottla", a_turn(ours))
        sides.add(KILL, "apache", a_turn(theirs))
    sides.add(CUT, "ottla", a_turn(0.1, lost=3, twice=1))
    sides.add(CUT, "apache", Turn((0.0, 0.0, 0.0), {}, "AssertionError: no"))
    sides.add(STOP, "ottla", a_turn(0.5))
    return sides


def test_medians_are_compared_and_who_takes_longer_than_noise_is_slower() -> None:
    kill, cut, stop = two_kinds().rows()
    assert kill.ours == (4.0, 1.0, 1.0)
    assert kill.ratio(0) == 0.75
    assert [kill.is_slower(at) for at in range(3)] == [True, False, False]
    assert (cut.theirs, cut.ratio(0), cut.is_slower(0)) == (None, None, False)
    assert (stop.theirs, stop.ratio(0), stop.is_slower(0)) == (None, None, False)


def test_a_small_difference_is_noise_whatever_its_ratio_and_a_small_ratio_whatever_its_seconds() -> None:
    sides = Sides(["ottla", "apache"])
    for cell, ours, theirs in ((KILL, 0.3, 0.06), (CUT, 11.0, 10.0)):
        sides.add(cell, "ottla", a_turn(ours))
        sides.add(cell, "apache", a_turn(theirs))
    assert not any(row.is_slower(0) for row in sides.rows())


def test_records_that_went_wrong_and_turns_that_failed_are_told() -> None:
    sides = two_kinds()
    kill, cut, stop = sides.rows()
    assert (kill.our_records, kill.their_records) == ("-", "-")
    assert (cut.our_records, cut.their_records) == ("3 lost, 1 twice", "1 of 1 turns FAILED")
    assert stop.their_records == ""
    assert sides.failures() == [f"apache, {CUT.name}: AssertionError: no"]


def test_tables_have_a_row_per_cell_and_per_group_of_cells_that_can_be_compared() -> None:
    sides = two_kinds()
    assert [line[0] for line in cell_table(sides)[1:]] == [KILL.name, CUT.name, STOP.name]
    assert [line[:3] for line in group_table(sides)[1:]][:2] == [["all", "1", "0.75"], ["fault kill", "1", "0.75"]]
    assert "0.75 SLOWER" in markdown(cell_table(sides))
    assert len({len(line) for line in plain(cell_table(sides)).splitlines()}) == 1
    assert len(sides.raw()) == 9
