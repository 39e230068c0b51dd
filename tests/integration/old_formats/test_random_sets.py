"""Random message sets of formats 0 and 1 get the answers of a running Apache Kafka 3.9.1, and are fetched as from it, byte by byte.

Behind the first ones, several faults of a set may be reported in another order.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing

import pytest

from ottla.protocol.errors import ErrorCode
from tests.integration.old_formats.comparison import CLOSED, OPEN, TOPICS, Comparison, Player
from tests.support.apache_kafka import ApacheKafka
from tests.support.apache_kafka.marks import needs_apache_kafka
from tests.support.broker_process import a_broker
from tests.support.request_comparison import CONFIG

pytestmark = [*needs_apache_kafka, pytest.mark.slow, pytest.mark.soak]

STRICT_SETS = 250
SETS = 20_000
SETTINGS = {**CONFIG, "log.index.size.max.bytes": "100000"}
EXPECTED = {
    ErrorCode.NONE,
    ErrorCode.UNKNOWN_SERVER_ERROR,
    ErrorCode.CORRUPT_MESSAGE,
    ErrorCode.MESSAGE_TOO_LARGE,
    ErrorCode.INVALID_TIMESTAMP,
    ErrorCode.INVALID_RECORD,
    CLOSED,
    OPEN,
}
"""The random sets are worth their time only if they meet with each of these."""


@pytest.fixture(scope="module")
def comparison(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Comparison]:
    directory = tmp_path_factory.mktemp("random-sets")
    kafka = ApacheKafka(directory / "theirs", heap="256m", config=SETTINGS)
    ours = {name.replace(".", "_"): value for name, value in SETTINGS.items()}
    with (
        kafka,
        a_broker(directory / "ours", broker_id=0, **ours) as broker,
        closing(Player(kafka.port(), TOPICS)) as their_player,
        closing(Player(broker.port, TOPICS)) as our_player,
    ):
        yield Comparison(their_player, our_player, TOPICS)


@pytest.mark.timeout(300 + SETS // 10)
def test_random_message_sets_get_the_answers_of_apache_kafka(comparison: Comparison) -> None:
    for seed in range(SETS):
        difference = comparison.play(seed, is_strict=seed < STRICT_SETS)
        assert difference is None, difference
    assert comparison.codes.keys() >= EXPECTED, comparison.codes
    assert comparison.codes[ErrorCode.NONE] > SETS / 4, comparison.codes
    differences = list(comparison.walk())
    assert not differences, "\n".join(differences)
