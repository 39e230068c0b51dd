"""One small class of Apache Kafka's own tests, with Ottla as its server; `make apache-suite` runs all of them."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.apache_suite.expectations import complaints, read_list
from tests.apache_suite.running import Suite
from tests.support.neighbours.artifacts import APACHE_SUITE, whole

pytestmark = [*APACHE_SUITE.marks, whole, pytest.mark.timeout(1800)]  # the compiler of Scala, at the first run

CLASS = "kafka.server.JoinGroupRequestTest"


def test_a_class_of_apache_kafka_has_the_outcomes_of_the_list(tmp_path: Path) -> None:
    outcomes = Suite(APACHE_SUITE.jars(), tmp_path).run(CLASS)
    assert outcomes
    assert complaints(outcomes, read_list()[CLASS]) == []
