"""Runs the classes of `suite.toml`, or those that are named, and compares the outcomes with the list.

`python -m tests.apache_suite [CLASS...] [--methods EXPRESSION]`: a class may be named without its package. With OTTLA_JUDGE the servers are
Apache Kafka's own, and every test has to pass. The status is 0 if everything is as listed. What JUnit and the brokers wrote is in
`build/apache-suite`. `--table` prints the rows of the table in docs/long-tests.md, and runs nothing. `--kafka-4` runs the classes of
`suite-4.toml`, which are of Apache Kafka 4, instead.
"""

import argparse
import os
import sys
import time
from collections import Counter
from pathlib import Path

from tests.apache_suite.expectations import LIST, LIST_4, Expectation, complaints, read_list, table
from tests.apache_suite.running import DidNotRunError, Suite
from tests.support.apache_kafka.jars import ToolMissingError
from tests.support.neighbours.artifacts import APACHE_SUITE, APACHE_SUITE_4

RESULTS = Path(__file__).parents[2] / "build" / "apache-suite"


def full_name(name: str, known: dict[str, Expectation]) -> str:
    """The class of the list with this name, or the name itself."""
    return next((each for each in known if each == name or each.endswith(f".{name}")), name)


def run_class(suite: Suite, name: str, methods: str, expectation: Expectation) -> bool:
    """Run a class and print its line; says whether everything was as expected."""
    chosen = methods or expectation.methods
    began = time.monotonic()
    try:
        outcomes = suite.run(name, chosen)
    except DidNotRunError as failure:
        print(f"{name}: {failure}", flush=True)
        return False
    found = complaints(outcomes, expectation, is_whole=not methods)
    counts = Counter(outcome.failure is None for outcome in outcomes)
    listed = Counter(reason.kind for each in outcomes if each.failure is not None and (reason := expectation.reason(each)) is not None)
    kinds = "".join(f", {count} fail as listed ({kind})" for kind, count in sorted(listed.items()))
    others = counts[False] - listed.total()
    failed = f", {others} FAILED" if others else ""
    print(f"{name}: {counts[True]} passed{kinds}{failed}, {time.monotonic() - began:.0f} s", flush=True)
    for line in found:
        print(f"    {line}", flush=True)
    return not found


def main() -> None:
    """See the module."""
    parser = argparse.ArgumentParser(prog="python -m tests.apache_suite", description=(__doc__ or "").split("\n")[0])
    parser.add_argument("classes", nargs="*", metavar="CLASS")
    parser.add_argument("--methods", default="", help="an expression for the names of the methods; by default those of the list")
    parser.add_argument("--table", action="store_true", help="print the list as the table of the page")
    parser.add_argument("--kafka-4", action="store_true", help="classes of Apache Kafka 4, on clusters with all features")
    arguments = parser.parse_args()
    listed = LIST_4 if arguments.kafka_4 else LIST
    known = read_list(listed)
    if arguments.table:
        print(*table(known), sep="\n")
        return
    names = [full_name(name, known) for name in arguments.classes] or [name for name, each in known.items() if each.runs]
    judge = "OTTLA_JUDGE" in os.environ
    try:
        jars = (APACHE_SUITE_4 if arguments.kafka_4 else APACHE_SUITE).fetch()
        suite = Suite(jars, RESULTS, judge, is_4=arguments.kafka_4)
    except ToolMissingError as missing:
        sys.exit(str(missing))
    nothing = Expectation(0, {})
    expected = {name: known.get(name, nothing) for name in names}
    if judge:
        expected = {name: nothing._replace(methods=each.methods) for name, each in expected.items()}
    wrong = [name for name in names if not run_class(suite, name, arguments.methods, expected[name])]
    if wrong:
        sys.exit(f"not as listed in tests/apache_suite/{listed.name}: {', '.join(wrong)}")


if __name__ == "__main__":
    main()
