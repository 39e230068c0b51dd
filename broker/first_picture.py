"""A broker that serves before the controller has told it of the cluster: who asks it for metadata waits until it was.

An empty answer, or one that says that topics do not exist, is worse for a client than none. librdkafka (2.16) gives up every broker that
an answer leaves out; if it leaves out all of them, it may never look for one again. A topic that it has known for 30 s does not exist any
more when one answer says so, and what is produced to that fails. Apache Kafka answers what it knows.

A controller that takes over speaks of brokers first, and of partitions when this broker has dealt with its LeaderAndIsr: a broker that has
replicas on disk is not told before both have come.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from broker.services import Services

WAIT_MS = 3_000
"""How long a request waits at most: clients give one up after some seconds, and with it all that they sent behind it."""


class FirstPicture:
    """Whether this broker was told of the cluster. Once it was, that stays true."""

    __slots__ = ("_is_there", "_services")

    def __init__(self, services: Services) -> None:
        self._services = services
        self._is_there = False

    @property
    def is_there(self) -> bool:
        """Whether there is something to say."""
        if not self._is_there:
            cluster = self._services.cluster
            self._is_there = bool(cluster.brokers) and (bool(cluster.topics) or len(self._services.log_manager) == 0)
        return self._is_there

    async def wait(self) -> bool:
        """Wait until it is there, at most WAIT_MS; whether it is.

        If no partition was given to this broker in that time either, what is on disk here is left over from topics that were deleted.
        """
        services = self._services
        if not await services.metadata_waits.until(lambda: self.is_there, WAIT_MS):
            self._is_there = bool(services.cluster.brokers) and not services.replica_manager.partitions
        return self._is_there
