"""What Apache Kafka did with bad input: the network floor alone closes on the lengths that Kafka closed on, and on nothing else."""

import json
from pathlib import Path
from typing import Any

import pytest

from ottla.broker.network.request_channel import NO_RESPONSE
from tests.support.network import Bench

GOLDEN = Path(__file__).parents[1] / "golden" / "wire" / "bad-input.jsonl"
CASES: list[dict[str, Any]] = [json.loads(line) for line in GOLDEN.read_text(encoding="utf-8").splitlines()]
BAD_LENGTHS = {
    "zero length frame",
    "negative length frame",
    "length 2147483647",
    "length socket.request.max.bytes + 1 (104857601)",
    "HTTP GET",
    "TLS ClientHello start",
}
INCOMPLETE = {"length socket.request.max.bytes, body never comes", "length longer than what comes"}


@pytest.mark.parametrize("case", [case for case in CASES if case["case"] in BAD_LENGTHS], ids=lambda case: case["case"])
def test_a_length_that_kafka_closes_on_closes_before_any_handler_sees_it(case: dict[str, Any]) -> None:
    bench = Bench()
    client = bench.connect()
    client.send(bytes.fromhex(case["sent_hex"]))
    assert case["outcome"] == "closed"
    assert client.transport.aborted
    assert bench.handled == []
    assert len(bench.lines) == 1


def test_every_other_recorded_input_reaches_the_handler_or_waits_for_the_rest_of_its_frame() -> None:
    assert len([case for case in CASES if case["case"] in BAD_LENGTHS]) == len(BAD_LENGTHS)
    for case in CASES:
        data = bytes.fromhex(case["sent_hex"])
        if case["case"] in BAD_LENGTHS or len(data) < case["sent_bytes"]:  # the recording has only the beginning of the largest
            continue
        bench = Bench(lambda frame, connection: NO_RESPONSE)
        client = bench.connect()
        client.send(data)
        assert not client.transport.closing, case["case"]
        assert bool(bench.handled) == (case["case"] not in INCOMPLETE), case["case"]
