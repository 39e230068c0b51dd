"""Reports the state of this process to systemd by the protocol of sd_notify(3), for units with `Type=notify`.

Messages are READY=1 when requests are served, STATUS with the progress of the start, EXTEND_TIMEOUT_USEC during the start or the stop,
STOPPING=1, and WATCHDOG=1 in half of the interval of `WatchdogSec`. The event loop sends all of them. If the loop is blocked, the messages
stop, and systemd restarts the broker. Without `NOTIFY_SOCKET` in the environment nothing is sent.
"""

from __future__ import annotations

import asyncio
import logging
import os
import socket
from collections.abc import Callable, Mapping
from typing import Final

logger = logging.getLogger(__name__)

BEAT_SECONDS: Final = 1.0
"""Pause between two reports while the broker starts or stops, and before a report that systemd did not take is repeated; seconds."""
EXTEND_USEC: Final = 30_000_000
"""Time by which each report extends the timeout of the unit, µs; many beats, so that a busy machine misses none."""


class ServiceManager:
    """See the module. `status` describes the progress of the start or the stop."""

    def __init__(self, environment: Mapping[str, str], status: Callable[[], str], process_id: int | None = None) -> None:
        self._address = _address(environment.get("NOTIFY_SOCKET", ""))
        self._status = status
        self._timer: asyncio.TimerHandle | None = None
        self._watchdog: asyncio.TimerHandle | None = None
        self._watchdog_seconds = _watchdog_seconds(environment, os.getpid() if process_id is None else process_id)
        self._socket: socket.socket | None = None
        if self._address:
            self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC)
            self._socket.setblocking(False)

    def on_starting(self) -> None:
        """The start begins: report its progress until `on_ready`."""
        self._beat()

    def on_ready(self) -> None:
        """Requests are served: report it, and begin to feed the watchdog."""
        self._stop_beating()
        self._announce()
        self._feed()

    def on_stopping(self) -> None:
        """The stop begins: report it until `close`."""
        self._stop_beating()
        self._send("STOPPING=1")
        self._beat()

    def close(self) -> None:
        """Send nothing more."""
        self._stop_beating()
        if self._watchdog is not None:
            self._watchdog.cancel()
        if self._socket is not None:
            self._socket.close()
            self._socket = None

    def _beat(self) -> None:
        if self._socket is None:
            return
        self._send(f"STATUS={self._status()}", f"EXTEND_TIMEOUT_USEC={EXTEND_USEC}")
        self._timer = asyncio.get_running_loop().call_later(BEAT_SECONDS, self._beat)

    def _announce(self) -> None:
        """Without this report systemd would end the broker after the timeout of the start, so it is repeated until systemd takes it."""
        if not self._send("READY=1", f"STATUS={self._status()}"):
            self._timer = asyncio.get_running_loop().call_later(BEAT_SECONDS, self._announce)

    def _stop_beating(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _feed(self) -> None:
        if self._socket is None or self._watchdog_seconds is None:
            return
        pause = self._watchdog_seconds / 2
        if not self._send("WATCHDOG=1"):
            pause = min(pause, BEAT_SECONDS)  # the next but one would come when the watchdog has run out
        self._watchdog = asyncio.get_running_loop().call_later(pause, self._feed)

    def _send(self, *assignments: str) -> bool:
        """False if systemd is behind and has taken nothing."""
        if self._socket is None:
            return True
        try:
            self._socket.sendto("\n".join(assignments).encode(), self._address)
        except BlockingIOError:
            return False
        except OSError as error:
            logger.warning(
                "NOTIFY_SOCKET=%s cannot be written: %s; nothing more is reported to the service manager", self._address, error.strerror
            )
            self._socket.close()
            self._socket = None
        return True


def _address(name: str) -> str:
    """The address of the socket; a name that begins with @ is in the abstract namespace."""
    return f"\0{name[1:]}" if name.startswith("@") else name


def _watchdog_seconds(environment: Mapping[str, str], process_id: int) -> float | None:
    """The interval of the watchdog; None if there is none, or if it is meant for another process."""
    text = environment.get("WATCHDOG_USEC", "")
    if not text.isdigit() or int(text) == 0 or environment.get("WATCHDOG_PID", str(process_id)) != str(process_id):
        return None
    return int(text) / 1e6
