"""`ottla dump-log` as a command: which files, which options, which status; and that commands start light."""

import json
import shutil
import struct
import subprocess
import sys
import tracemalloc
from pathlib import Path

import pytest

from ottla.cli.dump.text import Dump, DumpOptions
from ottla.protocol.records.builder import ControlRecordType as Type
from ottla.protocol.records.builder import EndTransactionMarker, build_batch, build_end_transaction_marker
from ottla.protocol.records.reader import Record
from tests.support.command_line import CommandLine
from tests.support.golden_logs import LOGS

CLEAN = LOGS / "clean"
SEGMENT = CLEAN / "log-segments-0" / "00000000000000000000.log"
ottla = CommandLine("127.0.0.1:1")


def test_a_directory_prints_all_its_files() -> None:
    printed = ottla("dump-log", str(SEGMENT.parent)).lines
    dumped = [Path(line.removeprefix("Dumping ")).name for line in printed if line.startswith("Dumping ")]
    assert dumped == sorted(path.name for path in SEGMENT.parent.iterdir() if path.suffix in {".log", ".index", ".timeindex", ".snapshot"})


def test_without_deep_iteration_batches_only() -> None:
    lines = ottla("dump-log", str(SEGMENT)).lines
    assert len(lines) == 2 + 7
    assert all(line.startswith("baseOffset: ") for line in lines[2:])


def test_files_can_be_given_as_the_original_takes_them() -> None:
    index = SEGMENT.with_suffix(".index")
    assert ottla("dump-log", "--files", f"{SEGMENT},{index}").out == ottla("dump-log", str(SEGMENT), str(index)).out


def test_a_decoder_prints_records() -> None:
    (log,) = (CLEAN / "__consumer_offsets-0").glob("*.log")
    assert "| offset: 0 " in ottla("dump-log", "--offsets-decoder", str(log)).out
    only = ottla("dump-log", "--offsets-decoder", "--skip-record-metadata", str(log)).lines[3]
    assert only.startswith('| key: {"type":"2","data":{"group":"g-java"}} payload: {"version":"3"')


def test_numbers_are_decoded(tmp_path: Path) -> None:
    log = tmp_path / "00000000000000000000.log"
    log.write_bytes(build_batch([Record(0, 5, (7).to_bytes(4, "big"), (-9).to_bytes(8, "big", signed=True))]))
    decoders = ("--key-decoder-class", "org.apache.kafka.tools.api.IntegerDecoder", "--value-decoder-class", "LongDecoder")
    assert ottla("dump-log", *decoders, str(log)).out.endswith("key: 7 payload: -9\n")
    assert ottla("dump-log", "--key-decoder-class", "DefaultDecoder", str(log)).out.count("key: 00000007") == 1
    assert "is not a number" not in ottla("dump-log", "--value-decoder-class", "Unknown", str(log), status=2).err


def test_max_bytes_ends_early_without_complaint() -> None:
    assert len(ottla("dump-log", "--max-bytes", "400", str(SEGMENT)).lines) == 2 + 2


@pytest.mark.slow
def test_a_record_of_very_many_headers_takes_little_memory(tmp_path: Path) -> None:
    log = tmp_path / "00000000000000000000.log"
    log.write_bytes(
        build_batch([Record(0, 5, b"k", b"v", ((b"", None),) * 100_000), Record(1, 6, None, b"v", ((b"a", b"x"), (b"b", None)))])
    )
    log.with_suffix(".index").touch()
    log.with_suffix(".timeindex").write_bytes(struct.pack(">qi", 6, 1))
    lines: list[str] = []
    dump = Dump(DumpOptions(deep_iteration=True), lines.append)
    tracemalloc.start()
    try:
        dump.file(log)
        dump.file(log.with_suffix(".timeindex"))
        assert tracemalloc.get_traced_memory()[1] < 3_000_000, "the headers have 200 KB, and take 6 MB as objects"
    finally:
        tracemalloc.stop()
    assert [line.partition("headerKeys: ")[2] for line in lines[3:5]] == [f"[{',' * 99_999}]", "[a,b]"]
    assert not dump.disagreements.lines()


def test_gaps_and_mismatches_are_said_at_the_end(tmp_path: Path) -> None:
    log = tmp_path / "00000000000000000000.log"
    log.write_bytes(build_batch([Record(0, 5, None, b"a")]) + build_batch([Record(3, 6, None, b"b")], base_offset=3) + b"torn")
    log.with_suffix(".index").write_bytes(bytes.fromhex("00000002 00000045".replace(" ", "")))
    log.with_suffix(".timeindex").write_bytes(bytes.fromhex("0000000000000009 00000003".replace(" ", "")))
    ended = ottla("dump-log", "--deep-iteration", str(tmp_path))
    assert "Found 4 invalid bytes at the end of 00000000000000000000.log" in ended.out
    assert f"Non-consecutive offsets in {log}\n  0 is followed by 3\n" in ended.err
    assert f"Found timestamp mismatch in :{log.with_suffix('.timeindex')}\n  Index timestamp: 9, log timestamp: 6\n" in ended.err
    assert "  Index offset: 2, log offset: 3\n" in ended.err


def test_what_makes_no_sense_fails_and_the_rest_is_printed(tmp_path: Path) -> None:
    broken = tmp_path / "00000000000000000000.log"
    broken.write_bytes(bytes(100))
    shutil.copy(SEGMENT, tmp_path / "00000000000000000007.log")
    ended = ottla("dump-log", str(tmp_path), status=1)
    assert "Record size 0 is less than the minimum" in ended.err
    assert "baseOffset: 18 " in ended.out


@pytest.mark.parametrize(
    ("tail", "said"),
    [
        (bytes(16), "Found 16 invalid bytes"),
        (bytes(17), "Found 17 invalid bytes"),
        (bytes(8) + (1000).to_bytes(4, "big") + b"\xdc" * 100, "Found 112 invalid bytes"),
    ],
)
def test_a_torn_tail_is_told_by_its_length_whatever_stands_in_it(tmp_path: Path, tail: bytes, said: str) -> None:
    log = tmp_path / SEGMENT.name
    log.write_bytes(SEGMENT.read_bytes() + tail)
    assert ottla("dump-log", str(log)).lines[-1] == f"{said} at the end of {log.name}"


def test_a_magic_from_the_future_is_printed_and_is_a_problem(tmp_path: Path) -> None:
    batch = bytearray(build_batch([Record(0, 5, None, b"a")]))
    batch[16] = 66
    log = tmp_path / "t-0" / "00000000000000000000.log"
    log.parent.mkdir()
    log.write_bytes(batch)
    assert " magic: 66 compresscodec: none " in ottla("dump-log", "--deep-iteration", str(log)).out
    assert "its magic is 66" in ottla("dump-log", "--verify", str(tmp_path), status=1).out


def test_aborted_transactions_are_printed_up_to_the_one_that_is_not_known(tmp_path: Path) -> None:
    index = tmp_path / "00000000000000000000.txnindex"
    index.write_bytes(struct.pack(">hqqqq", 0, 5, 8, 9, 10) + struct.pack(">hqqqq", 256, 5, 11, 12, 13) + b"torn")
    ended = ottla("dump-log", str(index), status=1)
    assert ended.lines[1:] == ["version: 0 producerId: 5 firstOffset: 8 lastOffset: 9 lastStableOffset: 10"]
    assert "unknown version 1" in ended.err


def test_keys_and_values_that_the_offsets_decoder_cannot_read_are_said_in_place(tmp_path: Path) -> None:
    log = tmp_path / "00000000000000000000.log"
    log.write_bytes(build_batch([Record(0, 5, b"\0", b"a"), Record(1, 5, b"\0\1\0", b"a")]))
    printed = ottla("dump-log", "--offsets-decoder", str(log)).out
    assert "key: Error at offset 0, skipping. Could not read version from key's buffer.\n" in printed
    assert "key: Error at offset 1, skipping. Could not read record with version 1 from key's buffer due to: " in printed


def test_markers_are_printed(tmp_path: Path) -> None:
    log = tmp_path / "00000000000000000000.log"
    log.write_bytes(build_end_transaction_marker(EndTransactionMarker(Type.COMMIT, 4), timestamp=1, producer_id=2, producer_epoch=0))
    assert "endTxnMarker: COMMIT coordinatorEpoch: 4" in ottla("dump-log", "--deep-iteration", str(log)).out


def test_a_sound_directory_has_status_0_and_a_damaged_one_status_1(tmp_path: Path) -> None:
    shutil.copytree(SEGMENT.parent, tmp_path / "t-0")
    assert ottla("dump-log", "--verify", str(tmp_path)).lines[-1] == "no problems"
    log = tmp_path / "t-0" / SEGMENT.name
    log.write_bytes(log.read_bytes()[:-1])
    ended = ottla("dump-log", "--verify", "--json", str(tmp_path), status=1)
    (report,) = json.loads(ended.out)
    assert not report["live"]
    assert "not a complete batch" in report["partitions"][0]["problems"][0]
    assert "PROBLEM" in ottla("dump-log", "--verify", str(tmp_path), status=1).out


def test_what_has_no_file_of_a_log_has_status_1(tmp_path: Path) -> None:
    (tmp_path / "notes.txt").touch()
    assert "no file of a log is in" in ottla("dump-log", str(tmp_path), status=1).err
    assert "no file of a log is in" in ottla("dump-log", str(tmp_path / "notes.txt"), status=1).err
    assert "is neither a data directory nor a partition's" in ottla("dump-log", "--verify", str(tmp_path), status=1).out


def test_wrong_calls_have_status_2() -> None:
    for arguments in ((), ("--json", str(SEGMENT)), ("--verify", str(SEGMENT)), ("missing",)):
        ottla("dump-log", *arguments, status=2)


HEAVY = {"rich", "asyncio", "uvloop", "kazoo", "sqlite3", "prometheus_client", "multiprocessing", "concurrent", "ssl"}


@pytest.mark.slow
def test_commands_start_light() -> None:
    """All in one process: what a command has loaded stays loaded, so a line also has what the commands before it have."""
    code = (
        "import sys\n"
        "from ottla.cli.main import main\n"
        "for command in sys.argv[1:]:\n"
        "    try: main([command, '--help'])\n"
        "    except SystemExit: pass\n"
        # None: one that is not to be loaded
        "    print('\\nLOADED', command, *sorted(name for name, module in sys.modules.items() if module))"
    )
    commands = ["topics", "groups", "configs", "produce", "consume", "dump-log"]
    root = Path(__file__).parents[3]
    out = subprocess.run([sys.executable, "-c", code, *commands], capture_output=True, text=True, check=True, cwd=root).stdout
    lines = [line.split()[1:] for line in out.splitlines() if line.startswith("LOADED")]
    assert [command for command, *_ in lines] == commands
    for command, *names in lines:
        loaded = {name.partition(".")[0] for name in names}
        assert "ottla" in loaded
        assert not loaded & HEAVY, command
        assert not {name.split(".")[1] for name in names if name.startswith("ottla.")} & {"storage", "replication", "controller"}, command
        assert not any(name.startswith(("ottla.broker.server", "ottla.client.cluster")) for name in names), command
