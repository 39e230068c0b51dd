"""Message sets that are small on the wire and large in memory: the broker answers others meanwhile, and does not grow."""

from __future__ import annotations

import threading
import time
from pathlib import Path

from ottla.protocol.errors import ErrorCode
from ottla.protocol.records.compression import CompressionCodec, compress
from tests.integration.old_formats.scenes import Scene
from tests.support.apache_kafka import answers_api_versions
from tests.support.broker_process import BrokerProcess, a_broker
from tests.support.old_messages import Old, message, wrapped

GZIP = CompressionCodec.GZIP
ROUNDS = 2
LONGEST_S = 2.0  # on a busy machine; a thread that kept the interpreter for a whole conversion would take longer
MOST_GROWTH_BYTES = 100 << 20


def million_of_empty_messages() -> bytes:
    """Compressed, with the absolute offsets of format 0."""
    return message(0, Old(999_999, -1, None, compress(GZIP, message(0, Old(0, -1, None, None)) * 1_000_000)), GZIP)


def ping(broker: BrokerProcess, until: threading.Event) -> float:
    """The longest time that another client waited for an answer."""
    longest = 0.0
    while not until.wait(0.01):
        began = time.monotonic()
        assert answers_api_versions("127.0.0.1", broker.port)
        longest = max(longest, time.monotonic() - began)
    return longest


def test_costly_message_sets_hold_up_nobody_and_leave_nothing_in_memory(tmp_path: Path) -> None:
    costly = [million_of_empty_messages(), wrapped(0, GZIP, [Old(0, -1, None, bytes(130 << 20))])]
    with a_broker(tmp_path, broker_id=0) as broker:
        scene = Scene(broker.port)
        scene.create({"costly": {}})
        sizes: list[int] = []
        codes: list[int] = []
        done = threading.Event()

        def produce_all() -> None:
            try:
                for _ in range(ROUNDS):
                    codes.extend(scene.produce("costly", 1, records)["error"] for records in costly)
                    sizes.append(broker.rss_bytes())
            finally:
                done.set()

        producer = threading.Thread(target=produce_all)
        producer.start()
        longest = ping(broker, done)
        producer.join()
        assert codes == ROUNDS * len(costly) * [ErrorCode.MESSAGE_TOO_LARGE]
        assert longest < LONGEST_S
        assert sizes[-1] - sizes[0] < MOST_GROWTH_BYTES
