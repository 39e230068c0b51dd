"""How outcomes of Apache Kafka's own tests are judged, and that their list agrees with the pages."""

import re
from pathlib import Path

import pytest

from tests.apache_suite.expectations import LIST_4, Expectation, Outcome, Reason, complaints, read_list, table
from tests.apache_suite.running import read_report

ROOT = Path(__file__).parents[2]
REASON = Reason("harness", "Metrics")

REPORT = """<?xml version="1.0" encoding="UTF-8"?>
<testsuite name="JUnit Jupiter" tests="4" skipped="1" failures="1" errors="1">
<testcase name="testA(String)[1]" classname="kafka.ATest" time="1"></testcase>
<testcase name="testA(String)[2]" classname="kafka.ATest" time="0"><skipped><![CDATA[runs on KRaft]]></skipped></testcase>
<testcase name="testB()" classname="kafka.ATest" time="1"><failure message="m" type="E"><![CDATA[E: expected 1
	at kafka.ATest]]></failure></testcase>
<testcase name="testC()" classname="kafka.ATest" time="1"><error type="E"></error></testcase>
</testsuite>
"""


def test_a_report_gives_the_tests_that_ran_and_the_first_lines_of_failures(tmp_path: Path) -> None:
    path = tmp_path / "report.xml"
    path.write_text(REPORT, encoding="utf-8")
    assert read_report(path) == [Outcome("testA(String)[1]", None), Outcome("testB()", "E: expected 1"), Outcome("testC()", "E")]


def test_what_is_as_listed_is_no_complaint() -> None:
    expected = Expectation(1, {"testB": REASON})
    assert complaints([Outcome("testA(String)[1]", None), Outcome("testB(String)[1]", "E: one")], expected) == []


@pytest.mark.parametrize(
    ("outcomes", "complaint"),
    [
        ([Outcome("testA()", "E: two"), Outcome("testB()", "E: one")], "testA(): E: two"),
        ([Outcome("testA()", None), Outcome("testB()", None)], "testB() passes, and is listed (harness: Metrics)"),
        ([Outcome("testA()", None)], "testB is listed, and did not run"),
        ([Outcome("testB()", "E: one")], "0 tests passed instead of 1"),
    ],
)
def test_anything_else_is_a_complaint(outcomes: list[Outcome], complaint: str) -> None:
    assert complaints(outcomes, Expectation(1, {"testB": REASON})) == [complaint]


def test_the_outcome_of_one_method_says_nothing_about_the_others() -> None:
    assert complaints([Outcome("testA()", None)], Expectation(2, {"testB": REASON}), is_whole=False) == []


def test_an_entry_without_a_reason_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "suite.toml"
    path.write_text('["kafka.ATest"]\ntestA = "slow"\n', encoding="utf-8")
    with pytest.raises(ValueError, match=r"kafka\.ATest\.testA needs one reason: harness or difference"):
        read_list(path)


def test_an_entry_may_name_the_methods_that_run(tmp_path: Path) -> None:
    path = tmp_path / "suite.toml"
    path.write_text('["kafka.ATest"]\nmethods = "test.*B"\npassed = 2\n["kafka.BTest"]\npassed = 1\n', encoding="utf-8")
    found = read_list(path)
    assert found == {"kafka.ATest": Expectation(2, {}, "test.*B"), "kafka.BTest": Expectation(1, {}, ".*")}
    assert table(found) == ["| `ATest` (`test.*B`) | 2 | |", "| `BTest` | 1 | |"]


def test_a_difference_is_a_row_of_the_page() -> None:
    page = (ROOT / "docs" / "differences.md").read_text(encoding="utf-8")
    cases = set(re.findall(r"^\| (.+?) \|", page, flags=re.MULTILINE))
    lists = [*read_list().values(), *read_list(LIST_4).values()]
    named = {reason.text for each in lists for reason in each.reasons.values() if reason.kind == "difference"}
    assert named <= cases


def test_the_page_has_the_table_of_the_list() -> None:
    page = (ROOT / "docs" / "long-tests.md").read_text(encoding="utf-8")
    assert re.findall(r"^\| `\w+Test` .*$", page, flags=re.MULTILINE) == [
        *table(read_list()),
        *table(read_list(LIST_4)),
    ], "python -m tests.apache_suite --table, also with --kafka-4"
