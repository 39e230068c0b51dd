"""Random histories of valid but unusual requests get the same answers from Apache Kafka and from Ottla.

More of them: `python -m tests.support.request_comparison --seed 1000 --histories 1000`. What may differ stands in docs/differences.md.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing

import pytest

from tests.support.apache_kafka.marks import needs_apache_kafka
from tests.support.request_comparison import Comparison, a_comparison

pytestmark = [*needs_apache_kafka, pytest.mark.slow]

HISTORIES = 6


@pytest.fixture(scope="module")
def comparison(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Comparison]:
    """Both brokers, each alone."""
    with a_comparison(tmp_path_factory.mktemp("requests")) as running:
        yield running


@pytest.mark.parametrize("seed", range(HISTORIES))
def test_a_history_gets_the_answers_of_apache_kafka(seed: int, comparison: Comparison) -> None:
    with closing(comparison.differences(seed)) as differences:
        difference = next(differences, None)
    assert difference is None, str(difference)
