"""Writes the audit lines of the console: one JSON object for each change, login, and refusal, with its user and address."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from typing import Any, Final

from ottla.console.rates import Buckets

MAX_LINE_BYTES: Final = 4096
"""Size of the description of a change in its line, bytes; a longer one is cut."""
_REFUSALS_AT_ONCE: Final = 20
_SECONDS_PER_REFUSAL: Final = 1.0
_ALL: Final = "all"


class Audit:
    """Writes lines through one function, from any thread. The rate of lines about refusals is limited; omitted lines are counted."""

    def __init__(self, write: Callable[[str], None], now: Callable[[], float], monotonic: Callable[[], float]) -> None:
        self._write = write
        self._now = now
        self._refusals = Buckets(_REFUSALS_AT_ONCE, _SECONDS_PER_REFUSAL, monotonic)
        self._omitted = 0
        self._lock = threading.Lock()

    def done(self, user: str, address: str, action: str, what: Mapping[str, Any], cluster: str | None = None) -> None:
        """Note a change that a cluster has made, or a login."""
        line = {"user": user, "address": address, "action": action, "outcome": "done"}
        self._line({**line, **({} if cluster is None else {"cluster": cluster}), **_cut(what)})

    def failed(self, user: str, address: str, action: str, what: Mapping[str, Any], cluster: str, error: str) -> None:
        """Note a change that failed; a part of it may have been made."""
        line = {"user": user, "address": address, "action": action, "outcome": "failed", "error": error[:MAX_LINE_BYTES]}
        self._line({**line, "cluster": cluster, **_cut(what)})

    def refused(self, user: str | None, address: str, action: str, error: str) -> None:
        """Note a request that the console has refused."""
        with self._lock:
            if self._refusals.seconds_until_free(_ALL) > 0:
                self._omitted += 1
                return
            self._refusals.take(_ALL)
            omitted, self._omitted = self._omitted, 0
        line = {"user": user, "address": address, "action": action, "outcome": "refused", "error": error}
        self._line({**line, "omitted_before": omitted} if omitted else line)

    def _line(self, fields: Mapping[str, Any]) -> None:
        time = datetime.fromtimestamp(self._now(), UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
        # Only ASCII leaves: no name of a topic or group can move the cursor of a terminal.
        text = json.dumps({"time": time, **fields}, ensure_ascii=True, separators=(",", ":"))
        with self._lock:
            self._write(text)


def _cut(what: Mapping[str, Any]) -> Mapping[str, Any]:
    text = json.dumps(what, ensure_ascii=True)
    return {"what": what} if len(text) <= MAX_LINE_BYTES else {"what_cut": text[:MAX_LINE_BYTES]}
