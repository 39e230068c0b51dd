"""Apache's DumpLogSegments reads a whole log directory of committed, aborted and open transactions: logs, indexes and snapshots."""

from __future__ import annotations

import re
from pathlib import Path

from confluent_kafka.admin import AdminClient, NewTopic

from tests.support.apache_kafka import run_tool
from tests.support.apache_kafka.marks import needs_apache_kafka
from tests.support.broker_process import eventually
from tests.support.judged_broker import a_judged_broker
from tests.support.transactional.confluent import ConfluentClient

pytestmark = needs_apache_kafka

DECODERS = {"__transaction_state": "--transaction-log-decoder", "__consumer_offsets": "--offsets-decoder"}
TRANSACTIONS = 12


def test_every_file_of_a_directory_is_read(tmp_path: Path) -> None:
    with a_judged_broker(tmp_path) as broker:
        admin = AdminClient({"bootstrap.servers": broker.bootstrap, "log_level": 0})
        admin.create_topics([NewTopic("t", 1, 1, config={"segment.bytes": "1000", "index.interval.bytes": "0"})])["t"].result(60)
        client = ConfluentClient(broker.bootstrap)
        producer, other = client.producer("ends"), client.producer("stays open")
        member = client.member("t", "group")
        for number in range(TRANSACTIONS):
            producer.begin()
            producer.send("t", 0, f"{number}" * 100)
            producer.flush()
            if number % 3 == 2:
                producer.send_offsets(member, "t", 0, number)
                producer.abort()
            else:
                if number > 0:
                    producer.send_offsets(member, "t", 0, number)
                producer.commit()
                eventually(member.poll, what="the member, which has its partition then, reads it")
        other.begin()
        other.send("t", 0, "open")
        other.flush()
        other.send_offsets(member, "t", 0, 1_000)
        member.close()
        broker.stop()

        shown = {directory.name: dumped(directory) for directory in sorted(broker.data.glob("*-[0-9]*")) if any(directory.glob("*.log"))}

    text = shown["t-0"]
    assert re.findall(r"endTxnMarker: (\w+)", text) == ["ABORT" if number % 3 == 2 else "COMMIT" for number in range(TRANSACTIONS)]
    assert text.count("baseOffset:") == 2 * TRANSACTIONS + 1, "a record and a marker of each transaction"
    aborted = re.findall(r"version: 0 producerId: \d+ firstOffset: (\d+) lastOffset: (\d+) lastStableOffset: (\d+)", text)
    assert aborted == [(str(2 * number), str(2 * number + 1), str(2 * number + 2)) for number in range(2, TRANSACTIONS, 3)]
    assert re.findall(rf"currentTxnFirstOffset: OptionalLong\[{2 * TRANSACTIONS}\]", text)
    states = "".join(lines for name, lines in shown.items() if name.startswith("__transaction_state"))
    assert {*re.findall(r"state=(\w+)", states)} == {
        "Empty", "Ongoing", "PrepareCommit", "CompleteCommit", "PrepareAbort", "CompleteAbort",
    }  # fmt: skip
    offsets = "".join(lines for name, lines in shown.items() if name.startswith("__consumer_offsets"))
    endings = re.findall(r"endTxnMarker: (\w+)", offsets)
    assert (endings.count("COMMIT"), endings.count("ABORT")) == (TRANSACTIONS * 2 // 3 - 1, TRANSACTIONS // 3)
    assert offsets.count('"offset":1000,') == 1, "of the transaction that is open"


def dumped(directory: Path) -> str:
    """What the tool says of all files of a partition, kind after kind."""
    said = []
    for ending in ("log", "index", "timeindex", "txnindex", "snapshot"):
        files = ",".join(map(str, sorted(directory.glob(f"*.{ending}"))))
        if not files:
            continue
        decoder = DECODERS.get(directory.name.rpartition("-")[0], "--print-data-log")
        done = run_tool("kafka.tools.DumpLogSegments", "--files", files, *(("--deep-iteration", decoder) if ending == "log" else ()))
        assert done.returncode == 0, done
        for complaint in ("isvalid: false", "Found timestamp mismatch", "Found out of order", "Mismatches in", "ERROR", "Exception"):
            assert complaint not in done.stdout + done.stderr, (directory, ending, done)
        said.append(done.stdout)
    return "".join(said)
