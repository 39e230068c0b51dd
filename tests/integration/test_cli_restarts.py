"""Commands while the broker goes away and comes back, and beside one that is running."""

import signal
from pathlib import Path

from tests.support.broker_process import BrokerProcess, a_broker, eventually
from tests.support.command_line import CommandLine, kill


def count_in(ottla: CommandLine, topic: str) -> int:
    return int(ottla("topics", "offsets", f"{topic}:0").rows[0][3])


def test_nothing_is_lost_or_doubled_when_the_broker_restarts(tmp_path: Path) -> None:
    with a_broker(tmp_path, offsets_topic_num_partitions=1) as broker:
        ottla = CommandLine(broker.bootstrap)
        ottla("topics", "create", "kept")
        reading = ottla.start("consume", "--timeout", "120", "-q", "-c", "400", "kept")
        writing = ottla.start("produce", "--timeout", "120", "--rate", "200", "kept")
        try:
            assert writing.stdin is not None
            writing.stdin.write(b"".join(b"%d\n" % number for number in range(400)))
            writing.stdin.close()
            eventually(lambda: count_in(ottla, "kept") > 40)
            assert reading.stdout is not None
            assert reading.stdout.readline() == b"0\n"  # both have met the broker: one that begins while it is away gives up at once
            broker.signal(signal.SIGKILL)
            broker.wait()
            broker.start()
            assert writing.wait(120) == 0, writing.stderr and writing.stderr.read()
            assert reading.stdout.read() == b"".join(b"%d\n" % number for number in range(1, 400))
            assert reading.wait(120) == 0, reading.stderr and reading.stderr.read()
        finally:
            kill(reading, writing)
        assert count_in(ottla, "kept") == 400


def test_a_directory_in_use_is_sound_and_so_is_it_after_a_kill(tmp_path: Path) -> None:
    broker = BrokerProcess(tmp_path, log_segment_bytes=2000, log_index_interval_bytes=100, offsets_topic_num_partitions=1).start()
    try:
        ottla = CommandLine(broker.bootstrap)
        ottla("topics", "create", "looked-at")
        ottla("produce", "--batch-bytes", "300", "looked-at", input="".join(f"line {number}\n" for number in range(500)))
        ottla("consume", "-G", "g", "-e", "looked-at")
        (report,) = ottla("dump-log", "--verify", "--deep-iteration", "--json", str(broker.data)).json
        assert report["live"]
        assert any(partition["records"] == 500 for partition in report["partitions"])
        broker.kill()
        (report,) = ottla("dump-log", "--verify", "--json", str(broker.data)).json
        assert not report["live"]
        broker.start()
        assert broker.stop() == 0
        assert ottla("dump-log", "--verify", str(broker.data)).lines[-1] == "no problems"
    finally:
        if broker.is_running:
            broker.stop()
