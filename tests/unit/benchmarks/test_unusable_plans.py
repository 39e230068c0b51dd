"""What of a run can be known to fail without Spark and without brokers."""

from __future__ import annotations

import os
import socket
import threading
from dataclasses import replace
from pathlib import Path

import pytest

from ottla.validate import session
from ottla.validate.plan import Plan, Unusable
from ottla.validate.report import ReportFolder
from ottla.validate.run import run
from ottla.validate.scratch import MadeFolder
from ottla.validate.sizes import batch_bytes, check_producer_limits, check_topic_limit, producer_limits

PLAN = Plan("nowhere", "topic", 100, Path("report"), record_bytes=2_000_000, key_bytes=2)


def test_the_producer_takes_what_the_run_needs_unless_the_user_says_otherwise() -> None:
    assert producer_limits(replace(PLAN, record_bytes=1_000_000)) == {}
    assert producer_limits(PLAN) == {"max.request.size": "2000090"}
    assert producer_limits(replace(PLAN, record_bytes=1 << 26)).keys() == {"max.request.size", "buffer.memory"}
    check_producer_limits(replace(PLAN, producer={"max.request.size": "2000090"}))
    with pytest.raises(Unusable, match=r"^--producer buffer\.memory=2000089: a record of --record-bytes 2000000 takes 2,000,090 bytes"):
        check_producer_limits(replace(PLAN, producer={"buffer.memory": "2000089"}))


def test_segments_of_a_tiered_topic_are_a_hundredth_of_a_partition_within_the_limits_of_a_topic() -> None:
    tiered = replace(PLAN, record_bytes=998, rows=1_000_000, partitions=1, tiered=True)
    assert tiered.topic_configs["segment.bytes"] == "10000000"
    assert replace(tiered, rows=10**9).topic_configs["segment.bytes"] == str(1 << 30)
    assert replace(tiered, rows=100).topic_configs["segment.bytes"] == "32768"


def test_the_topic_must_take_the_largest_record_unless_it_may_become_smaller() -> None:
    assert batch_bytes(PLAN) == 2_000_076
    check_topic_limit(PLAN, 2_000_076)
    check_topic_limit(replace(PLAN, codec="zstd"), 300)
    with pytest.raises(Unusable, match=r"^rows\.csv: its largest row takes 2,000,076 bytes in topic topic"):
        check_topic_limit(replace(PLAN, input=Path("rows.csv")), 2_000_075)


def a_listener(says: bytes | None) -> tuple[socket.socket, str]:
    """Says that to who comes, or nothing at all, without ever reading; the connection stays."""
    listening = socket.create_server(("127.0.0.1", 0))
    if says is not None:

        def answer() -> None:
            with listening.accept()[0] as connection:
                connection.sendall(says)
                connection.recv(100)

        threading.Thread(target=answer, daemon=True).start()
    return listening, f"spark://127.0.0.1:{listening.getsockname()[1]}"


@pytest.mark.parametrize("says", [None, b"HTTP/1.1 400 Bad Request\r\n\r\n"], ids=["nothing", "a page"])
def test_what_listens_and_is_no_master(monkeypatch: pytest.MonkeyPatch, says: bytes | None) -> None:
    monkeypatch.setattr(session, "_ANSWER_S", 0.1 if says is None else 30.0)
    listening, master = a_listener(says)
    with listening, pytest.raises(Unusable, match=f"^what listens at {master} does not answer as a Spark master does"):
        session.check_master(master)


@pytest.mark.slow
def test_a_master_that_answers_is_enough(monkeypatch: pytest.MonkeyPatch) -> None:
    mute, first = a_listener(None)
    live, second = a_listener(bytes([0, 0, 0, 0, 0, 0, 0, 19, 8]))  # a StreamFailure
    with mute, live:
        monkeypatch.setattr(session, "_ANSWER_S", 2.0)
        session.check_master(f"{first},{second.removeprefix('spark://')}")


@pytest.mark.parametrize("option", ["report", "work"])
def test_a_refused_run_leaves_no_folder_that_was_not_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str], option: str
) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    monkeypatch.setattr(session, "check_java", lambda: "17")
    (tmp_path / "there").mkdir()
    deep = tmp_path / "there" / "a" / "b" / "r"
    plan = Plan("here:there", "topic", 100, tmp_path / "report")
    assert run(replace(plan, report=deep) if option == "report" else replace(plan, work=str(deep))) == 2
    assert "'here:there' is not an address of a broker" in capfd.readouterr().err
    assert [path.name for path in tmp_path.rglob("*")] == ["there"]


def test_folders_in_use_stay_and_those_that_cannot_be_made_leave_none(tmp_path: Path) -> None:
    with ReportFolder(tmp_path / "a" / "b" / "r") as folder:
        folder.publish()
    assert (tmp_path / "a" / "b" / "r").is_dir()
    with pytest.raises(OSError, match="too long"):
        MadeFolder(tmp_path / "c" / "d" / ("e" * 300))
    assert os.listdir(tmp_path) == ["a"]
