"""Lines of text in the log: one for each message, whatever a client has put into it."""

import logging
import sys

from ottla.broker.logs.setup import text_formatter


def text_of(record: logging.LogRecord) -> str:
    return text_formatter().format(record)


def test_a_name_of_a_client_does_not_look_like_another_line() -> None:
    name = "ünal\n[2026-01-01 00:00:00,000] ERROR the disk is full (storage)\r\x1b[2J\u2028"
    line = text_of(logging.LogRecord("ottla.broker.network.processor", logging.WARNING, "", 0, "client id %s", (name,), None))
    assert line.isprintable()
    assert "WARNING client id ünal\\n[2026-01-01 00:00:00,000] ERROR the disk is full (storage)\\r\\x1b[2J\\u2028" in line
    assert line.endswith(" (ottla.broker.network.processor)")


def test_a_stack_trace_has_lines_of_its_own() -> None:
    try:
        raise ValueError("planted")
    except ValueError:
        lines = text_of(logging.LogRecord("x", logging.ERROR, "", 0, "failed", None, sys.exc_info())).splitlines()
    assert lines[0].endswith(" ERROR failed (x)")
    assert lines[1] == "Traceback (most recent call last):"
    assert lines[-1] == "ValueError: planted"
