"""`ottla dump-log` of logs in formats 0 and 1, compared with Apache Kafka's DumpLogSegments."""

from __future__ import annotations

from pathlib import Path

from tests.support.command_line import CommandLine

ottla = CommandLine("127.0.0.1:1")
GOLDEN = Path(__file__).parents[2] / "golden" / "old-formats"
SEGMENTS = sorted((GOLDEN / "logs").glob("*/*.log"))


def test_messages_are_printed_as_by_apache_kafka() -> None:
    printed = ottla("dump-log", "--deep-iteration", *map(str, SEGMENTS)).out
    assert printed.replace(f"{GOLDEN}/logs/", "").splitlines() == (GOLDEN / "dump.txt").read_text().splitlines()


def test_logs_in_old_formats_have_no_problems(tmp_path: Path) -> None:
    assert "no problems" in ottla("dump-log", "--verify", "--deep-iteration", str(GOLDEN / "logs")).out


def test_damage_inside_a_compressed_message_is_a_problem(tmp_path: Path) -> None:
    data = bytearray((GOLDEN / "logs" / "old-1-gzip-0" / SEGMENTS[0].name).read_bytes())
    data[60] ^= 0xFF
    log = tmp_path / "t-0" / SEGMENTS[0].name
    log.parent.mkdir()
    log.write_bytes(data)
    assert "its CRC is not" in ottla("dump-log", "--verify", str(tmp_path), status=1).out
