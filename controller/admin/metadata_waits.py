"""Waiting until this broker's picture of the cluster shows what was asked for: CreateTopics is answered when the topic can be used."""

import asyncio
from collections.abc import Callable


class MetadataWaits:
    """Conditions on the metadata cache. `notify` is called after every UpdateMetadata that was taken in."""

    def __init__(self) -> None:
        self._waiting: dict[asyncio.Future[None], Callable[[], bool]] = {}
        self.on_wait: Callable[[], None] = lambda: None
        """Called in the task that is about to wait: a client may have it wait for weeks, so it must not be in anybody's way meanwhile."""

    def notify(self) -> None:
        """The cache has changed: let those go whose condition has come true."""
        for future, condition in list(self._waiting.items()):
            if not future.done() and condition():
                future.set_result(None)

    async def until(self, condition: Callable[[], bool], timeout_ms: int) -> bool:
        """Wait until `condition` holds, at most `timeout_ms`; whether it does."""
        if condition():
            return True
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting[future] = condition
        self.on_wait()
        try:
            await asyncio.wait((future,), timeout=max(0, timeout_ms) / 1000)
        finally:
            del self._waiting[future]
        return future.done() or condition()
