"""Carries out the commands that a test sends to its broker: faults, and operations of a client that prepare or check a test.

A command is a line of JSON on standard input, an answer a line of JSON on standard output with the same `id`:

    {"id": 1, "do": "fail", "api": "PRODUCE", "error": "NOT_LEADER_OR_FOLLOWER", "times": 2}
    {"id": 1, "result": null}

The README of pytest-ottla has a table of the commands.

The answer to a command that fails has `error`, one line. The answer to `compact` comes when the logs are clean. Commands of a client
(`ottla.ephemeral.client_commands`) run in threads, several at a time. The broker does not wait for them when it ends.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import re
import threading
from collections.abc import Callable
from enum import IntEnum
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from ottla.client.errors import ClientError
from ottla.ephemeral.at_will import AtWill
from ottla.ephemeral.faults import Faults
from ottla.protocol.api_keys import ApiKey
from ottla.protocol.errors import ErrorCode

if TYPE_CHECKING:
    from ottla.broker.server import Broker

ERRORS: Final = (ClientError, KeyError, TypeError, ValueError, OSError)
"""Errors of a command that cannot be carried out."""
_CALLED: Final = re.compile(r"^[\w.<>]+\(\) ")
"""Names the function in the text of a TypeError, which is of no use to a test."""


class Control:
    """See the module. `answer` writes a line; it is called on the event loop."""

    def __init__(self, faults: Faults, bootstrap: str, broker: Broker, answer: Callable[[str], None]) -> None:
        self._bootstrap = bootstrap
        self._answer = answer
        self._loop = asyncio.get_running_loop()
        self._on_loop = commands_on_loop(faults, broker)
        self._tasks: set[asyncio.Task[object]] = set()
        """Commands that are being carried out."""

    def on_line(self, line: bytes) -> None:
        """Carry out one command."""
        try:
            order = json.loads(line)
            name, number = str(order.pop("do")), order.pop("id", None)
        except (ValueError, KeyError, TypeError, AttributeError):
            self._answer(json.dumps({"error": "a command is a JSON object with the member do"}))
            return
        work = self._on_loop.get(name)
        if work is not None:
            self._carry_out(number, work, order)
        else:
            # A daemon thread: a client may retry for half a minute to reach a stopped broker, and must not delay the exit.
            threading.Thread(target=self._as_client, args=(number, name, order), daemon=True).start()

    def _carry_out(self, number: object, work: Callable[..., object], order: dict[str, Any]) -> None:
        try:
            result = work(**order)
        except Exception as error:  # the test waits for an answer, whatever happened
            self._answer(_failed(number, error))
            return
        if not asyncio.iscoroutine(result):
            self._answer(_done(number, result))
            return
        task = self._loop.create_task(result)
        self._tasks.add(task)
        task.add_done_callback(partial(self._on_carried_out, number))

    def _on_carried_out(self, number: object, task: asyncio.Task[object]) -> None:
        self._tasks.discard(task)
        if not task.cancelled():
            error = task.exception()
            self._answer(_failed(number, error) if isinstance(error, Exception) else _done(number, task.result()))

    def _as_client(self, number: object, name: str, order: dict[str, Any]) -> None:
        from ottla.ephemeral.client_commands import carry_out

        try:
            answer = _done(number, carry_out(name, self._bootstrap, order, self._on_loop))
        except Exception as error:  # the test waits for an answer, whatever happened
            answer = _failed(number, error)
        with contextlib.suppress(RuntimeError):  # the loop has ended with the broker
            self._loop.call_soon_threadsafe(self._answer, answer)


def commands_on_loop(faults: Faults, broker: Broker) -> dict[str, Callable[..., object]]:
    """The commands that are carried out on the event loop of the broker, some of them coroutines. They raise what ERRORS lists."""
    at_will = AtWill(broker)
    return {
        "fail": lambda **order: _fail(faults, **order),
        "delay": lambda **order: _delay(faults, **order),
        "cut": lambda **order: _cut(faults, **order),
        "disk": lambda **order: _disk(faults, **order),
        "clock": lambda **order: _clock(faults, **order),
        "heal": faults.heal,
        "advance": lambda ms: faults.time.advance(float(ms) / 1000),
        "roll": at_will.roll,
        "compact": at_will.compact,
        "expire": at_will.expire,
        "end_locks": at_will.end_locks,
        "brokers": lambda: sorted(broker.services.metadata.brokers),
    }


def _like(name: str, names: type[IntEnum]) -> str:
    """Names the member that is probably meant, or the first as an example."""
    from difflib import get_close_matches  # a test that names what there is has no need of it

    known = [each.name for each in names]
    meant = get_close_matches(name, known, n=1)
    return f"did you mean {meant[0]}?" if meant else f"Apache Kafka's names are like {known[-1]}"


def one_line(error: Exception) -> str:
    """The text of an error, in one line."""
    text = " ".join(str(error).split()) or type(error).__name__
    if isinstance(error, TypeError):
        return f"the arguments do not fit: {_CALLED.sub('', text)}; the README of pytest-ottla lists those of each command"
    return text


def _done(number: object, result: object) -> str:
    """The line that answers a command."""
    return json.dumps({"id": number, "result": result})


def _failed(number: object, error: Exception) -> str:
    """The line that answers a command that failed."""
    return json.dumps({"id": number, "error": one_line(error)})


def _fail(faults: Faults, api: str, error: str | None, times: int = 1) -> None:
    key, code = str(api).upper(), None if error is None else str(error).upper()  # JSON may have a number
    if key not in ApiKey.__members__:
        raise ValueError(f"there is no api {api!r}; {_like(key, ApiKey)}")
    if code is not None and code not in ErrorCode.__members__:
        raise ValueError(f"there is no error {error!r}; {_like(code, ErrorCode)}")
    faults.fail(ApiKey[key], None if code is None else ErrorCode[code], times)


def _delay(faults: Faults, ms: float) -> None:
    faults.delay_seconds = ms / 1000


def _cut(faults: Faults, brokers: list[int]) -> None:
    faults.cut_off = set(brokers)


def _disk(faults: Faults, full: bool = False, slow_ms: float = 0) -> None:
    faults.disk.is_full = full
    faults.disk.pause_seconds = slow_ms / 1000


def _clock(faults: Faults, shift_ms: int) -> None:
    faults.clock_shift_ms = int(shift_ms)
