"""From turns to the result: medians and merged latencies, ratios, targets, the tables and the picture."""

from collections.abc import Sequence
from pathlib import Path
from xml.etree import ElementTree

import pytest
from rich.console import Console, Group

from benchmarks.loadgen.runner import Measured
from benchmarks.parts import groups as groups_part
from benchmarks.parts import single as single_part
from benchmarks.parts.part import Curve
from benchmarks.parts.single import LINES
from benchmarks.report.histogram import Histogram, bucket_of
from benchmarks.report.lines import Line, cpu_of, cpu_per_gb_of, latency_of, number, rate_of
from benchmarks.report.page import Run, write_page
from benchmarks.report.table import TOOK_S, Sides, is_well, line_table, markdown, notes
from benchmarks.turns.sizes import NORMAL
from benchmarks.turns.turn import Turn

FASTER = Line("rate", "requests", "req/s", number("rate"), ratio_at_least=3)
SOONER = Line("time", "start", "s", number("time"), 2, less_is_better=True, at_most=0.3)


def a_load(per_second: int, latency_ns: int = 1_000_000, cpu_s: float = 0.5) -> Measured:
    latency = Histogram([(bucket_of(latency_ns), per_second)], latency_ns)
    return Measured(per_second, per_second, 1.0, per_second * 1000, 0, latency, generator_cpu_s=0.4, broker_cpu_s=cpu_s)


def a_turn(label: str, rate: int = 1000, **numbers: float) -> Turn:
    return Turn(label, {line.key: a_load(rate) for line in LINES if line.unit == "req/s"}, numbers)


def rendered(sides: dict[str, Sequence[Turn]]) -> str:
    console = Console(width=200, record=True, quiet=False, file=None, force_terminal=False)
    with console.capture() as captured:
        console.print(Group(line_table("Side by side", sides, LINES), *notes(sides)))
    return captured.get()


def row(text: str, start: str) -> list[str]:
    """The cells of the first row whose first cell starts so."""
    lines = [[cell.strip() for cell in line.strip("│").split("│")] for line in text.splitlines() if "│" in line]
    return next(cells for cells in lines if cells[0].startswith(start))


def test_a_rate_that_must_be_reached_needs_no_reference() -> None:
    line = Line("rate", "requests", "req/s", number("rate"), at_least=250)

    assert line.target() == "≥ 250 req/s"
    assert [line.reached(ours, reference) for ours, reference in ((250, None), (249, 1.0), (None, 300))] == [True, False, None]


def test_a_rate_is_the_median_of_the_turns() -> None:
    turns = [Turn("a", {"load": a_load(rate)}) for rate in (100, 5000, 300)]

    assert rate_of("load")(turns) == 300


def test_a_latency_percentile_is_taken_over_the_requests_of_all_turns() -> None:
    turns = [Turn("a", {"load": a_load(900, 1_000_000)}), Turn("a", {"load": a_load(100, 8_000_000)})]

    assert latency_of("load", 50)(turns) == pytest.approx(1, rel=0.01)
    assert latency_of("load", 95)(turns) == pytest.approx(8, rel=0.01)


def test_processor_time_per_request_is_taken_over_the_requests_of_all_turns() -> None:
    turns = [Turn("a", {"load": a_load(100, cpu_s=0.1)}), Turn("a", {"load": a_load(300, cpu_s=0.7)})]

    assert cpu_of("load")(turns) == pytest.approx(2000)


def test_cost_is_processor_time_over_the_bytes_that_went_the_way_of_the_records() -> None:
    turns = [Turn("a", {"load": a_load(1000, cpu_s=0.1)}), Turn("a", {"load": a_load(1000, cpu_s=0.3)})]

    assert cpu_per_gb_of("load")(turns) == pytest.approx(0.4 / 2e6 * 1e9)


def test_a_load_that_failed_in_every_turn_has_no_value() -> None:
    assert rate_of("load")([Turn("a")]) is None
    assert latency_of("load", 99)([Turn("a")]) is None
    assert cpu_of("load")([Turn("a")]) is None


def test_a_ratio_says_how_many_times_better_for_rates_and_for_times() -> None:
    assert FASTER.ratio(300, 100) == 3
    assert SOONER.ratio(0.5, 2.0) == 4
    assert FASTER.ratio(None, 100) is None


@pytest.mark.parametrize(("ours", "reached"), [(300, True), (299, False), (None, None)])
def test_a_ratio_target_is_judged_against_the_reference(ours: float | None, reached: bool | None) -> None:
    assert FASTER.reached(ours, 100) is reached


@pytest.mark.parametrize(("ours", "reached"), [(0.3, True), (0.31, False), (None, None)])
def test_an_absolute_target_needs_no_reference(ours: float | None, reached: bool | None) -> None:
    assert SOONER.reached(ours, None) is reached


def test_the_table_shows_each_side_the_ratio_the_target_and_the_verdict() -> None:
    text = rendered({"Apache": [a_turn("Apache", 1000, start_s=2.0)], "Ottla": [a_turn("Ottla", 2500, start_s=0.2)]})

    assert row(text, "produce, 1 record") == ["produce, 1 record of 100 B", "req/s", "1,000", "2,500", "2.50 ×", "≥ 1.5 ×", "yes"]
    assert row(text, "produce, 16 KiB batch")[2:] == ["1,000", "2,500", "2.50 ×", "≥ 3 ×", "NO"]
    assert row(text, "start to the first")[1:] == ["s", "2.00", "0.20", "10.00 ×", "≤ 0.3 s", "yes"]


def test_a_missing_number_is_a_dash_without_a_verdict() -> None:
    text = rendered({"Apache": [a_turn("Apache")], "Ottla": [Turn("Ottla", failures={"produce-1": "closed the connection"})]})

    assert row(text, "produce, 1 record") == ["produce, 1 record of 100 B", "req/s", "1,000", "-", "-", "≥ 1.5 ×", ""]
    assert "Ottla, turn 1, produce-1 failed: closed the connection" in text


def test_a_side_alone_is_held_to_the_absolute_bounds_only() -> None:
    text = rendered({"Ottla": [a_turn("Ottla", 2500, start_s=0.2)]})

    assert row(text, "produce, 1 record")[-1] == ""
    assert row(text, "start to the first")[-1] == "yes"


def test_a_run_on_a_busy_machine_says_so() -> None:
    text = rendered({"Apache": [a_turn("Apache", foreign_share=0.4)], "Ottla": [a_turn("Ottla", foreign_share=0.01)]})

    assert "Apache: other programs used up to 40% of the machine" in text
    assert "Ottla: other programs" not in text


def test_the_page_names_the_parts_during_which_the_machine_was_busy() -> None:
    quiet, busy = ({"Apache": [a_turn("Apache", foreign_share=share)]} for share in (0.01, 0.4))

    def warning(single: Sides, groups: Sides) -> str:
        return Run({}, "normal", NORMAL, [(single_part.PART, single), (groups_part.PART, groups)], 60.0).warning

    assert warning(quiet, quiet) == ""
    assert "these parts: Consumer groups (40%)." in warning(quiet, busy)


@pytest.mark.slow
def test_the_picture_is_well_formed_and_has_a_bar_per_ratio() -> None:
    from benchmarks.report.picture import ratio_picture

    sides = {"Apache <3.9>": [a_turn("Apache", 1000, time=2.0)], "Ottla": [a_turn("Ottla", 2500, time=0.2)]}

    rates = [line for line in LINES if line.unit == "req/s"]

    picture = ElementTree.fromstring(ratio_picture(sides, rates))

    texts = [text.text for text in picture.iter("{http://www.w3.org/2000/svg}text")]
    assert "Ottla: how many times better than Apache <3.9>" in texts
    assert texts.count("2.50 ×") == len(rates) > 0


def test_without_a_ratio_there_is_no_picture() -> None:
    from benchmarks.report.picture import ratio_picture

    assert ratio_picture({"Ottla": [a_turn("Ottla")]}, LINES) == ""


def test_courses_of_all_sides_stand_in_one_picture() -> None:
    from benchmarks.report.picture import curve_picture

    curve = Curve("c", "memory", "seconds", "MB", lambda turns: {"all": turns[0].courses["memory"]} if turns[0].courses else {})
    sides = {"Apache": [Turn("Apache", courses={"memory": [(0, 400), (1, 410)]})], "Ottla": [Turn("Ottla", courses={"memory": [(0, 45)]})]}

    texts = [text.text for text in ElementTree.fromstring(curve_picture(sides, curve)).iter("{http://www.w3.org/2000/svg}text")]

    assert {"Apache: all", "Ottla: all", "memory", "MB"} <= set(texts)
    assert curve_picture({"Ottla": [Turn("Ottla")]}, curve) == ""


def test_a_table_on_the_page_has_the_same_cells() -> None:
    sides = {"Apache": [Turn("Apache", numbers={"rate": 100})], "Ottla": [Turn("Ottla", numbers={"rate": 350})]}

    lines = markdown(line_table("Side by side", sides, [FASTER])).splitlines()

    assert lines[1].startswith("| --- | --- | ---: |")
    assert lines[2] == "| requests | req/s | 100 | 350 | 3.50 × | ≥ 3 × | yes |"


def test_lines_that_nobody_was_asked_for_are_left_out() -> None:
    sides = {"Ottla": [Turn("Ottla", numbers={"rate": 350})]}

    assert line_table("Side by side", sides, [FASTER, SOONER]).row_count == 1


@pytest.mark.parametrize(("rate", "well"), [(299, False), (300, True)])
def test_all_is_well_when_no_target_is_missed(rate: float, well: bool) -> None:
    sides = {"Apache": [Turn("Apache", numbers={"rate": 100})], "Ottla": [Turn("Ottla", numbers={"rate": rate})]}

    assert is_well(sides, [FASTER]) is well


def test_all_is_not_well_when_something_failed() -> None:
    assert not is_well({"Ottla": [Turn("Ottla", failures={"start": "it did not"})]}, [])


def test_the_page_says_how_long_each_part_took(tmp_path: Path) -> None:
    sides = {label: [a_turn(label, **{TOOK_S: 90.0}), a_turn(label, **{TOOK_S: 60.0})] for label in ("Apache Kafka", "Ottla")}

    write_page(Run({"date": "today"}, "normal", NORMAL, [(single_part.PART, sides)], 150.0), tmp_path)

    assert "`python -m benchmarks.bench --parts single` took 2.5 minutes." in (tmp_path / "README.md").read_text(encoding="utf-8")
