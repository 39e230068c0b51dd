"""Starts one store process (`store_worker`), sends it requests, and notices its end, for `StoreProcess`.

Lives on the event loop. Its thread starts the process, which takes some milliseconds: the kernel kills a process at the end of the thread
that has started it. A process whose calls hang still answers pings. One that does not, which is suspended or blocked, is killed.
"""

from __future__ import annotations

import asyncio
import os
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import Any, Final, cast

from ottla.broker.remote.store_messages import Answer, LogLine, MessageReader, Op, OtherVersion, Request, encoded, error_of, hello
from ottla.storage.remote.ports import RemoteStoreError

OPEN_SECONDS: Final = 30.0
"""Time in which a process has to open the store."""
PING_SECONDS: Final = 15.0
"""Time between two pings."""
MOST_PINGS: Final = 4
"""Pings without an answer, after which there is no further one: the first of them was sent a minute ago then."""
GRACE_SECONDS: Final = 0.1
"""Time to read the answers that came while this process itself was suspended."""
END_SECONDS: Final = 1.0
"""Time for the end of a process that was killed. One that waits for a disk in the kernel may take longer."""
_LAST_WORDS_BYTES: Final = 65_536
_MOST_WORDS: Final = 300
"""Characters of its last line on standard error."""
_BY_ITSELF: Final = "it has closed the connection"
_WORKER: Final = "ottla.broker.remote.store_worker"


def command_of(descriptor: int) -> list[str]:
    """Returns the command of a store process that talks by the socket with this descriptor."""
    return [sys.executable, "-P", "-m", _WORKER, str(descriptor), str(os.getpid())]


class StoreChild(asyncio.Protocol):
    """One process. `is_open` tells whether its store was opened, `is_over` whether it has ended, or was killed."""

    def __init__(self, numbers: Iterator[int], on_line: Callable[[LogLine], None], on_lost: Callable[[StoreChild], None]) -> None:
        """`numbers` are those of the requests. `on_lost` is called when a process ends that was open, and that `close` has not ended."""
        self._loop = asyncio.get_running_loop()
        self._numbers = numbers
        self._on_line = on_line
        self._on_lost = on_lost
        self._reader = MessageReader(hello())
        self._transport: asyncio.WriteTransport | None = None
        self._process: subprocess.Popen[bytes] | None = None
        self._errors: int | None = None
        """The pipe with what it writes to standard error, of which the system keeps a limited part."""
        self._answers: dict[int, asyncio.Future[Any]] = {}
        self._pings: set[int] = set()
        """Those that were sent and have no answer."""
        self._timer: asyncio.TimerHandle | None = None
        self._reaping: asyncio.Task[None] | None = None
        self._reason = ""
        self._last_words = ""
        self.is_open = self.is_over = False

    @property
    def pid(self) -> int | None:
        """The process id, if it was started."""
        return None if self._process is None else self._process.pid

    @property
    def is_reaped(self) -> bool:
        """Whether nothing is left of the process."""
        return self._reaping is not None and self._reaping.done()

    async def open(self, *arguments: Any) -> None:
        """Starts the process, and opens the store in it. Raises RemoteStoreError, and ConfigError for settings that it refuses.

        After an error the process is over.
        """
        try:
            async with asyncio.timeout(OPEN_SECONDS):
                connecting = self._loop.create_task(self._loop.create_unix_connection(lambda: self, sock=self._start()))
                await asyncio.shield(connecting)  # a cancelled one might close the socket, or not
                await self.ask(Op.OPEN, *arguments)
            if self.is_over:
                raise self._lost()
            self.is_open = True
            self._timer = self._loop.call_later(PING_SECONDS, self._ping)
            return
        except TimeoutError:
            self.kill(f"it was not ready within {OPEN_SECONDS:.0f} s")
        except (OSError, RemoteStoreError) as error:
            self.kill(str(error))
        except BaseException:
            self.kill("its store was not opened")
            raise
        raise RemoteStoreError(f"the store process does not start: {await self.obituary()}")

    async def ask(self, op: Op, *arguments: Any, number: int | None = None) -> Any:
        """Returns the answer to a request, which the process forgets if the caller is cancelled.

        Raises the error that the process answers, and RemoteStoreError if it ends before.
        """
        if self.is_over or self._transport is None:
            raise self._lost()
        if number is None:
            number = next(self._numbers)
        answer: asyncio.Future[Any] = self._loop.create_future()
        answer.add_done_callback(_look_at_exception)
        self._answers[number] = answer
        try:
            self._transport.write(encoded(Request(number, op, arguments)))
            return await answer
        except asyncio.CancelledError:
            self.forget(number)
            raise
        finally:
            self._answers.pop(number, None)

    def forget(self, number: int) -> None:
        """Has the process stop a request, and give up what that holds. It does so before all later requests."""
        if not self.is_over and self._transport is not None:
            self._transport.write(encoded(Request(next(self._numbers), Op.FORGET, (number,))))

    def kill(self, reason: str) -> None:
        """Ends the process, and with an error all calls that wait for it. Does nothing if it is over."""
        if self.is_over:
            return
        was_open, self.is_open, self.is_over = self.is_open, False, True
        self._reason = reason
        if self._timer is not None:
            self._timer.cancel()
        if self._transport is not None:
            self._transport.abort()
        for answer in self._answers.values():
            if not answer.done():
                answer.set_exception(self._lost())
        if self._process is not None:
            self._process.kill()
        self._reaping = self._loop.create_task(self._reap(), name="end of a store process")
        if was_open:
            self._on_lost(self)

    async def obituary(self) -> str:
        """Returns why and how the process has ended, as far as that is known within END_SECONDS. For one that is over."""
        assert self._reaping is not None
        await asyncio.wait((self._reaping,), timeout=END_SECONDS)
        found = [self._reason]
        if self._process is not None and self._reason == _BY_ITSELF:
            status = self._process.returncode
            if status is not None:
                found.append(f"signal {-status}" if status < 0 else f"exit status {status}")
            if self._last_words:
                found.append(self._last_words)
        return "; ".join(found)

    async def close(self, deadline: float) -> None:
        """Ends the transfers of the store, and then the process. Returns at `deadline`, a time of the loop, even if it has not ended."""
        try:
            if self.is_open:
                with suppress(Exception):
                    async with asyncio.timeout_at(deadline - END_SECONDS):
                        await self.ask(Op.CLOSE)
        finally:
            self.is_open = False
            self.kill("it was closed")
        assert self._reaping is not None
        await asyncio.wait((self._reaping,), timeout=max(0.0, deadline - self._loop.time()))
        self._reaping.cancel()

    # -- the connection --------------------------------------------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """See Protocol."""
        self._transport = made = cast(asyncio.WriteTransport, transport)  # uvloop's is not derived from it
        if self.is_over:
            made.abort()
        else:
            made.write(hello())

    def data_received(self, data: bytes) -> None:
        """See Protocol."""
        if self.is_over:
            return
        try:
            messages = self._reader.feed(data)
        except OtherVersion:
            self.kill("it is of another version than this broker, because files were replaced since the broker started; restart the broker")
            return
        except Exception as error:
            self.kill(f"its messages cannot be read: {type(error).__name__}: {error}")
            return
        for message in messages:
            if isinstance(message, Answer):
                self._on_answer(message)
            else:
                self._on_line(message)

    def connection_lost(self, exc: Exception | None) -> None:
        """See Protocol."""
        self.kill(_BY_ITSELF)

    def _on_answer(self, message: Answer) -> None:
        self._pings.discard(message.number)
        answer = self._answers.get(message.number)
        if answer is None or answer.done():
            return
        if message.failure is None:
            answer.set_result(message.value)
        else:
            answer.set_exception(error_of(message.failure))

    def _lost(self) -> RemoteStoreError:
        return RemoteStoreError(f"the store process ended: {self._reason}")

    # -- the process -----------------------------------------------------------------------------------------------------

    def _start(self) -> socket.socket:
        """Starts the process, and returns the socket to it. Raises OSError."""
        self._errors, errors = os.pipe2(os.O_CLOEXEC | os.O_NONBLOCK)  # the process does not wait while the pipe is full
        try:
            ours, theirs = socket.socketpair()
            with theirs:
                try:
                    ours.setblocking(False)
                    self._process = subprocess.Popen(
                        command_of(theirs.fileno()),
                        stdin=subprocess.DEVNULL,
                        stdout=subprocess.DEVNULL,
                        stderr=errors,
                        pass_fds=(theirs.fileno(),),
                        process_group=0,  # Ctrl-C in a terminal is for the broker
                    )
                except BaseException:
                    ours.close()
                    raise
        finally:
            os.close(errors)
        return ours

    async def _reap(self) -> None:
        """Waits for the end of the process, without a thread, and reads its last words."""
        pause = 0.002
        try:
            while self._process is not None and self._process.poll() is None:
                await asyncio.sleep(pause)
                pause = min(2 * pause, 0.5)
        finally:
            if self._errors is not None:
                with suppress(OSError):
                    self._last_words = _last_line(os.read(self._errors, _LAST_WORDS_BYTES))
                os.close(self._errors)
                self._errors = None

    def _ping(self) -> None:
        if len(self._pings) >= MOST_PINGS:
            self._timer = self._loop.call_later(GRACE_SECONDS, self._give_up)
            return
        number = next(self._numbers)
        self._pings.add(number)
        assert self._transport is not None
        self._transport.write(encoded(Request(number, Op.PING, ())))
        self._timer = self._loop.call_later(PING_SECONDS, self._ping)

    def _give_up(self) -> None:
        if len(self._pings) >= MOST_PINGS:
            self.kill(f"it has not answered for {MOST_PINGS * PING_SECONDS:.0f} s")
        else:
            self._ping()


def _last_line(text: bytes) -> str:
    lines = text.decode(errors="replace").split("\n")
    return next((line.strip()[:_MOST_WORDS] for line in reversed(lines) if line.strip()), "")


def _look_at_exception(answer: asyncio.Future[Any]) -> None:
    """Looks at the exception, which asyncio would log if the caller had left."""
    if not answer.cancelled():
        answer.exception()
