"""Writes log lines so that a slow disk or a slow reader of a pipe cannot block the event loop.

A thread writes the lines of a file. A line for standard error is written where it is logged, as long as the reader keeps up. If the reader
does not, the thread writes the lines until none waits. Lines wait in a bounded queue. A line that finds the queue full is dropped and
counted, and a line after the next written one reports the count.
"""

from __future__ import annotations

import atexit
import logging
import queue
import threading
from contextlib import suppress
from logging.handlers import QueueHandler, QueueListener
from typing import Final

from ottla.broker.logs.files import RotatingFile
from ottla.broker.logs.json_lines import JsonLines
from ottla.broker.logs.setup import text_formatter
from ottla.broker.logs.standard_error import StandardError
from ottla.broker.logs.values import plain_values
from ottla.config.broker import BrokerConfig
from ottla.config.errors import ConfigError
from ottla.config.keys.own import (
    OTTLA_LOG_FILE,
    OTTLA_LOG_FILE_MAX_BYTES,
    OTTLA_LOG_FILE_RETAINED,
    OTTLA_LOG_FILE_ROLL_MS,
    OTTLA_LOG_FORMAT,
)

MAX_LINES: Final = 10_000
"""Log lines that wait to be written; about 5 MB."""
END_SECONDS: Final = 10.0
"""How long the end of the process waits until all lines are written, seconds. A reader that reads nothing must not keep it alive."""
_REOPEN: Final = logging.makeLogRecord({})
"""Stands in the queue for an order instead of a line."""
_END: Final = None
"""Ends the thread; QueueListener's own sentinel."""
_PLAIN: Final = logging.Formatter()


class LogSink:
    """The queue, its thread and the output. `dropped` counts the lines that were lost since the start."""

    def __init__(self, config: BrokerConfig) -> None:
        """Raises ConfigError when the file of the configuration cannot be opened."""
        waiting: queue.Queue[logging.LogRecord | None] = queue.Queue(MAX_LINES)
        self._json = JsonLines(config[OTTLA_LOG_FORMAT]) if config[OTTLA_LOG_FORMAT] != "text" else None
        path = config[OTTLA_LOG_FILE]
        self._output: logging.Handler = StandardError() if path is None else _open(path, config)
        self._output.setFormatter(self._json or text_formatter())
        self.handler = _Queueing(waiting, self._output)
        self.is_plain = path is None and self._json is None
        """Whether lines are text for standard error, as before the configuration was known."""
        self._listener = _Writing(waiting, self._output, self.handler)
        self._listener.start()
        atexit.register(self.close)

    @property
    def dropped(self) -> int:
        """Lines that were lost because the queue was full."""
        return self.handler.dropped

    def identify(self, broker_id: int, cluster_id: str) -> None:
        """Name the broker and its cluster in every further line; text lines do not name them."""
        if self._json is not None:
            self._json.identity = {"broker": broker_id, "cluster": cluster_id}

    def reopen(self) -> None:
        """Write the next line to a new file of the configured name."""
        self.handler.reopen()

    def close(self) -> None:
        """Write what waits, and end the thread."""
        atexit.unregister(self.close)
        logging.getLogger().removeHandler(self.handler)
        if self._listener.end():
            self._output.close()


def _open(path: str, config: BrokerConfig) -> RotatingFile:
    try:
        return RotatingFile(path, config[OTTLA_LOG_FILE_MAX_BYTES], config[OTTLA_LOG_FILE_RETAINED], config[OTTLA_LOG_FILE_ROLL_MS] / 1000)
    except OSError as error:
        raise ConfigError(
            f"{OTTLA_LOG_FILE.name}={path} cannot be opened: {error.strerror or error}; create its folder, or set another file"
        ) from None


class _Queueing(QueueHandler):
    """Formats the message where it is logged, since its values may change later. Passes the rest to the thread, or to standard error."""

    def __init__(self, waiting: queue.Queue[logging.LogRecord | None], output: logging.Handler) -> None:
        super().__init__(waiting)
        self.dropped = 0
        self._waiting = waiting
        self._standard_error = output if isinstance(output, StandardError) else None
        self._counting = threading.Lock()

    def prepare(self, record: logging.LogRecord) -> logging.LogRecord:
        """The record with its text, and with values that no longer change."""
        text = record.getMessage()
        record.__dict__.update(template=record.msg, values=plain_values(record.args))
        record.msg, record.args = text, None
        if record.exc_info:
            record.exc_text = _PLAIN.formatException(record.exc_info)
            record.exc_info = None
        return record

    def enqueue(self, record: logging.LogRecord) -> None:
        """Write the record at once if that needs no wait and none is before it; else queue it, or count it as dropped."""
        at_once = self._standard_error
        # Callers have the handler's lock. So no record is added in between, and the thread has none.
        if at_once is not None and not self._waiting.unfinished_tasks and at_once.emit_at_once(record):
            return
        try:
            self._waiting.put_nowait(record)
        except queue.Full:
            with self._counting:
                self.dropped += 1

    def reopen(self) -> None:
        """Let the thread reopen the file before the next line."""
        if self._standard_error is None:
            self.enqueue(_REOPEN)


class _Writing(QueueListener):
    """The thread that writes."""

    def __init__(self, waiting: queue.Queue[logging.LogRecord | None], output: logging.Handler, handler: _Queueing) -> None:
        super().__init__(waiting, output)
        self._waiting = waiting
        self._output = output
        self._handler = handler
        self._reported = 0

    def end(self) -> bool:
        """Write what waits, within END_SECONDS; returns whether all was written and the thread has ended."""
        thread = self._thread
        assert thread is not None
        with suppress(queue.Full):
            # The library's own form raises this error at once if the queue is full, and all lines in it would be lost.
            self._waiting.put(_END, timeout=END_SECONDS)
            thread.join(END_SECONDS)
        return not thread.is_alive()

    def handle(self, record: logging.LogRecord) -> None:
        """Write one record, and report lines that were dropped before it. A record that cannot be formatted does not end the thread."""
        try:
            self._write(record)
        except Exception:
            self._output.handleError(record)

    def _write(self, record: logging.LogRecord) -> None:
        if record is _REOPEN:
            if isinstance(self._output, RotatingFile):
                self._output.reopen()
            return
        self._output.handle(record)
        dropped = self._handler.dropped
        if dropped > self._reported and self._waiting.empty():
            lost, self._reported = dropped - self._reported, dropped
            line = logging.LogRecord(
                __name__, logging.WARNING, "", 0, f"{lost} log lines were dropped: they came faster than they can be written", None, None
            )
            self._output.handle(line)
