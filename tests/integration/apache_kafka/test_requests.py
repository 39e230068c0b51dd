"""Random histories of valid but unusual requests get the same answers from Apache Kafka and from Ottla.

More of them: `python -m tests.support.request_comparison --seed 1000 --histories 1000`. What may differ stands in docs/differences.md.
"""

from __future__ import annotations

from contextlib import closing
from pathlib import Path

import pytest

from tests.support.apache_kafka.marks import needs_apache_kafka
from tests.support.request_comparison import a_comparison

pytestmark = [*needs_apache_kafka, pytest.mark.slow]

HISTORIES = 6


@pytest.mark.soak
def test_random_histories_get_the_answers_of_apache_kafka(tmp_path: Path) -> None:
    with a_comparison(tmp_path) as comparison:
        for seed in range(HISTORIES):
            with closing(comparison.differences(seed)) as differences:
                difference = next(differences, None)
            assert difference is None, str(difference)
