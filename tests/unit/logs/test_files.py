"""Log files: rotation, reopening, a full disk, a lost folder, and a queue that is full."""

import json
import logging
import os
import shutil
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from ottla.broker.logs import files
from ottla.broker.logs.files import RotatingFile
from ottla.broker.logs.setup import apply_configuration, apply_environment, dropped_lines, text_formatter
from ottla.broker.logs.sink import MAX_LINES, LogSink
from ottla.config.broker import BrokerConfig
from ottla.config.errors import ConfigError

HOUR = 3600.0
log = logging.getLogger("tests.of.log.files")


def eventually(is_true: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 10
    while not is_true():
        assert time.monotonic() < deadline
        time.sleep(0.005)


def record(text: str) -> logging.LogRecord:
    return logging.LogRecord("x", logging.INFO, "", 0, text, None, None)


@pytest.fixture
def file(tmp_path: Path) -> Iterator[RotatingFile]:
    made = RotatingFile(str(tmp_path / "broker.log"), 25, 2, HOUR)
    yield made
    made.close()


def test_files_rotate_by_size_and_the_oldest_is_removed(file: RotatingFile, tmp_path: Path) -> None:
    for number in range(4):
        file.emit(record(f"a line of 20 bytes {number}"))
    names = sorted(path.name for path in tmp_path.iterdir())
    assert names == ["broker.log", "broker.log.1", "broker.log.2"]
    assert [(tmp_path / name).read_text()[-2] for name in names] == ["3", "2", "1"]


def test_files_rotate_by_age(tmp_path: Path) -> None:
    file = RotatingFile(str(tmp_path / "broker.log"), 1 << 20, 5, 0.0)
    file.emit(record("one"))
    file.emit(record("two"))
    file.close()
    assert (tmp_path / "broker.log").read_text() == "two\n"
    assert (tmp_path / "broker.log.1").read_text() == "one\n"


def test_a_file_that_was_moved_is_reopened_on_demand(file: RotatingFile, tmp_path: Path) -> None:
    file.emit(record("one"))
    (tmp_path / "broker.log").rename(tmp_path / "moved")
    file.reopen()
    file.emit(record("two"))
    assert (tmp_path / "moved").read_text() == "one\n"
    assert (tmp_path / "broker.log").read_text() == "two\n"


def test_a_full_file_that_was_moved_is_no_failure(tmp_path: Path, capfdbinary: pytest.CaptureFixture[bytes]) -> None:
    file = RotatingFile(str(tmp_path / "broker.log"), 25, 0, HOUR)
    file.emit(record("a line of 20 bytes 1"))
    (tmp_path / "broker.log").rename(tmp_path / "moved")
    file.emit(record("a line of 20 bytes 2"))
    file.close()
    assert (tmp_path / "broker.log").read_text() == "a line of 20 bytes 2\n"
    assert capfdbinary.readouterr().err == b""


def test_without_the_folder_lines_go_to_standard_error_until_it_is_back(
    tmp_path: Path, capfdbinary: pytest.CaptureFixture[bytes], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(files, "CHECK_SECONDS", 0.0)
    folder = tmp_path / "logs"
    folder.mkdir()
    file = RotatingFile(str(folder / "broker.log"), 1 << 20, 2, HOUR)
    shutil.rmtree(folder)
    for number in range(3):
        file.emit(record(f"lost {number}"))
    folder.mkdir()
    file.emit(record("found"))
    file.close()
    assert (folder / "broker.log").read_text() == "found\n"
    said = capfdbinary.readouterr().err.decode().splitlines()
    assert said[0] == (
        f"ottla: log file {folder}/broker.log cannot be written: No such file or directory; lines go to standard error until it can be"
    )
    assert said[1:] == ["lost 0", "lost 1", "lost 2"]


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="no /dev/full")
def test_a_full_disk_costs_one_line_on_standard_error_and_no_log_line(capfdbinary: pytest.CaptureFixture[bytes]) -> None:
    file = RotatingFile("/dev/full", 1 << 20, 0, HOUR)
    file.emit(record("one"))
    file.emit(record("two"))
    file.close()
    said = capfdbinary.readouterr().err.decode().splitlines()
    assert said == [
        "ottla: log file /dev/full cannot be written: No space left on device; lines go to standard error until it can be",
        "one",
        "two",
    ]


def test_a_folder_that_does_not_exist_ends_the_start_with_one_line(tmp_path: Path) -> None:
    with pytest.raises(
        ConfigError, match=r"ottla\.log\.file=.*/no/broker\.log cannot be opened: No such file or directory; create its folder"
    ):
        apply_configuration(BrokerConfig({"ottla.log.file": f"{tmp_path}/no/broker.log"}))


@pytest.fixture
def root() -> Iterator[logging.Logger]:
    """The root logger, whose handlers and level are as before afterwards."""
    logger = logging.getLogger()
    handlers, level = list(logger.handlers), logger.level
    logger.setLevel(logging.INFO)
    yield logger
    logger.setLevel(level)
    for handler in list(logger.handlers):
        if handler not in handlers:
            logger.removeHandler(handler)
    for handler in handlers:
        if handler not in logger.handlers:
            logger.addHandler(handler)


def sink_of(tmp_path: Path, **settings: str) -> LogSink:
    sink = apply_configuration(BrokerConfig({"ottla.log.file": f"{tmp_path}/broker.log", "ottla.log.format": "json", **settings}))
    assert sink is not None
    return sink


def write_to_a_stuck_disk(sink: LogSink) -> threading.Event:
    """Write a line, with which the disk stands still until the event is set."""
    stuck, entered = threading.Event(), threading.Event()
    write = sink._output.emit

    def emit(record: logging.LogRecord) -> None:
        entered.set()
        assert stuck.wait(30)
        write(record)

    sink._output.emit = emit  # type: ignore[method-assign]  # a disk that stands still
    log.info("first")
    assert entered.wait(10)
    return stuck


def test_lines_are_written_by_a_thread_and_all_are_there_after_the_end(root: logging.Logger, tmp_path: Path) -> None:
    sink = sink_of(tmp_path)
    sink.identify(7, "abc")
    changing = ["one"]
    log.info("the list is %s", changing)
    changing.append("two")
    sink.close()
    (line,) = [json.loads(each) for each in (tmp_path / "broker.log").read_text().splitlines()]
    assert (line["message"], line["broker"], line["cluster"]) == ("the list is ['one']", 7, "abc")


@pytest.mark.slow
def test_a_writer_that_stands_still_stops_no_caller_and_the_lost_lines_are_counted(root: logging.Logger, tmp_path: Path) -> None:
    sink = sink_of(tmp_path)
    stuck = write_to_a_stuck_disk(sink)
    for _ in range(MAX_LINES + 5):
        log.info("more")
    assert sink.dropped == dropped_lines() == 5
    stuck.set()
    eventually(lambda: "5 log lines were dropped" in (tmp_path / "broker.log").read_text())
    sink.close()
    assert (tmp_path / "broker.log").read_text().count('"more"') == MAX_LINES


@pytest.mark.slow
def test_the_end_waits_for_room_in_a_full_queue_and_loses_no_line(root: logging.Logger, tmp_path: Path) -> None:
    sink = sink_of(tmp_path)
    stuck = write_to_a_stuck_disk(sink)
    for _ in range(MAX_LINES):
        log.info("more")
    threading.Timer(0.1, stuck.set).start()
    sink.close()
    assert (tmp_path / "broker.log").read_text().count('"more"') == MAX_LINES


def test_a_signal_to_reopen_is_carried_out_without_another_line(root: logging.Logger, tmp_path: Path) -> None:
    sink = sink_of(tmp_path)
    (tmp_path / "broker.log").rename(tmp_path / "moved")
    sink.reopen()
    eventually((tmp_path / "broker.log").exists)
    sink.close()


def test_a_line_that_cannot_be_formatted_ends_no_thread(root: logging.Logger, tmp_path: Path) -> None:
    sink = sink_of(tmp_path)
    write, failed = sink._output.format, threading.Event()

    def format_or_fail(record: logging.LogRecord) -> str:
        if record.getMessage() == "bad":
            failed.set()
            raise ValueError
        return write(record)

    sink._output.format = format_or_fail  # type: ignore[method-assign]  # a fault of the formatter
    log.info("bad")
    log.info("good")
    sink.close()
    assert failed.is_set()
    assert '"good"' in (tmp_path / "broker.log").read_text()


def test_a_client_cannot_forge_a_line() -> None:
    forged = "\n[2026-01-01 00:00:00,000] INFO forged (broker)\x1b"
    try:
        raise ValueError
    except ValueError:
        said = logging.LogRecord("x", logging.ERROR, "", 0, "client id %s", (forged,), sys.exc_info())
    event, *trace = text_formatter().format(said).split("\n")
    assert event.endswith(r"client id \n[2026-01-01 00:00:00,000] INFO forged (broker)\x1b (x)")
    assert trace[0].startswith("Traceback")


def test_levels_of_the_container_image_are_set_by_kafkas_names(root: logging.Logger, caplog: pytest.LogCaptureFixture) -> None:
    controller = logging.getLogger("ottla.controller")
    try:
        apply_environment({"KAFKA_LOG4J_ROOT_LOGLEVEL": "WARN", "KAFKA_LOG4J_LOGGERS": "kafka.controller=ERROR, storage=LOUD"})
        assert root.level == logging.WARNING
        assert controller.level == logging.ERROR
        assert "the level LOUD of logger storage does not exist" in caplog.text
    finally:
        controller.setLevel(logging.NOTSET)
