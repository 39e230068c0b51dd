"""Rebalances leaders periodically: `auto.leader.rebalance.enable`. Kafka's auto-leader-rebalance-task.

`Controller` starts the timer when it becomes active and ends it when it resigns. The first rebalance comes soon after a
failover, when leaders are least balanced; the others follow every `leader.imbalance.check.interval.seconds`.
"""

import asyncio

from ottla.config.keys.replication import AUTO_LEADER_REBALANCE_ENABLE, LEADER_IMBALANCE_CHECK_INTERVAL_SECONDS
from ottla.controller.events.leader_elections import LeaderElections
from ottla.controller.state.core import ControllerCore

FIRST_TURN_SECONDS = 5.0


class LeaderRebalance:
    """The timer of one controller."""

    def __init__(self, core: ControllerCore, elections: LeaderElections) -> None:
        self._core = core
        self._elections = elections
        self._timer: asyncio.TimerHandle | None = None

    def begin(self) -> None:
        """This controller has become active."""
        if self._core.config[AUTO_LEADER_REBALANCE_ENABLE]:
            self._in(FIRST_TURN_SECONDS)

    def end(self) -> None:
        """This controller is no longer active, or stops."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _in(self, seconds: float) -> None:
        self.end()
        self._timer = asyncio.get_running_loop().call_later(seconds, self._put)

    def _put(self) -> None:
        self._core.put("AutoPreferredReplicaLeaderElection", self._turn)

    async def _turn(self) -> None:
        try:
            await self._elections.rebalance()
        finally:
            # A controller that resigned meanwhile has ended the timer and must not start it again.
            if self._core.is_active:
                self._in(self._core.config[LEADER_IMBALANCE_CHECK_INTERVAL_SECONDS])
