"""Names the clusters of a console, finds the cluster of a request by its path, and provides threads for each cluster.

Each cluster has its own threads to wait for brokers, so a cluster that does not answer does not affect the others.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from http import HTTPStatus
from typing import Final, ParamSpec, TypeVar

from anyio import CapacityLimiter, to_thread
from starlette.exceptions import HTTPException
from starlette.requests import Request

from ottla.client.cluster import Cluster
from ottla.client.errors import ClientError
from ottla.console.decoding import Decoder
from ottla.console.history.sampler import Sampler
from ottla.console.inventory import Inventory, Kept, take_inventory
from ottla.console.views import View, findings

CLUSTER: Final = "cluster"
"""The parameter of a path that names the cluster."""
MAX_THREADS: Final = 32
"""Threads that work for one cluster at a time; more than its searches, live views and exports."""
PATIENCE_SECONDS: Final = 0.7
"""Time that a page waits for a broker that does not accept connections, or is being replaced, seconds. The page says what is missing."""
_SHOWN_CHARACTERS: Final = 100

Parameters = ParamSpec("Parameters")
Result = TypeVar("Result")


class Served:
    """A cluster of a console. `connect` makes a client for each change, `decoder` shows the bytes of its records."""

    def __init__(self, name: str, connect: Callable[[], Cluster], decoder: Decoder) -> None:
        self.name = name
        self.connect = connect
        self.decoder = decoder
        self.streams = 0
        """Searches, live views and exports that run."""
        self.inventory = Kept(self._inventory)
        self.findings = Kept(self._findings)
        self.sampler = Sampler(self.connect_briefly)
        self._threads: CapacityLimiter | None = None

    def connect_briefly(self) -> Cluster:
        """A client for a page, which leaves out brokers that do not answer instead of waiting for them."""
        found = self.connect()
        found.patience_seconds = PATIENCE_SECONDS
        return found

    async def in_thread(self, work: Callable[Parameters, Result], *args: Parameters.args, **kwargs: Parameters.kwargs) -> Result:
        """The result of a function that waits for this cluster."""
        if self._threads is None:  # it belongs to the event loop, which does not run before
            self._threads = CapacityLimiter(MAX_THREADS)
        return await to_thread.run_sync(partial(work, *args, **kwargs), limiter=self._threads)

    async def sample(self) -> None:
        """Take samples until it is cancelled."""
        await self.sampler.run(self.in_thread)

    async def _inventory(self) -> Inventory:
        return await self.in_thread(self._taken, take_inventory)

    async def _findings(self) -> View:
        return await self.in_thread(self._taken, findings)

    def _taken(self, take: Callable[[Cluster], Result]) -> Result:
        with self.connect_briefly() as cluster:
            return take(cluster)


class Clusters:
    """The clusters in the order in which they are shown. The first one answers requests without a cluster name."""

    def __init__(self, served: Sequence[Served]) -> None:
        """Raises ClientError for a name that a path cannot hold."""
        for each in served:
            if each.name in ("", ".", "..") or "/" in each.name or not each.name.isprintable():
                raise ClientError(f"{each.name!a} names no cluster of a console: such a name has no /, and is neither . nor ..")
        self._first = served[0]
        self._by_name = {each.name: each for each in served}

    def __iter__(self) -> Iterator[Served]:
        return iter(self._by_name.values())

    def of(self, request: Request) -> Served:
        """The cluster of a request. Raises HTTPException for a name that the console does not have."""
        name = request.path_params.get(CLUSTER)
        if name is None:
            return self._first
        found = self._by_name.get(name)
        if found is None:
            known = ", ".join(self._by_name)
            raise HTTPException(HTTPStatus.NOT_FOUND, f"this console has no cluster {name[:_SHOWN_CHARACTERS]}; it has {known}")
        return found
