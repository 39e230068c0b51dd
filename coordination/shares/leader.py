"""Serves share groups at the leaders of partitions: share partitions, the sessions of members, and the fetches that wait.

Wiring, by the server:

    shares = ShareLeader(...)
    replica_manager.leadership_listeners.append(shares.led.on_leadership_change)
    shares.start()
    ...
    shares.stop()                 # before the coordinator of the state stops
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import Final

from ottla.config.broker import BrokerConfig
from ottla.config.keys.shares import GROUP_SHARE_MAX_SHARE_SESSIONS, SHARE_FETCH_PURGATORY_PURGE_INTERVAL_REQUESTS
from ottla.coordination.shares.led_partitions import LedPartitions
from ottla.coordination.shares.positions import Positions
from ottla.coordination.shares.sessions import ShareSession, ShareSessions
from ottla.coordination.shares.settings import ShareSettings
from ottla.coordination.shares.state_access import StateAccess
from ottla.protocol.errors import ErrorCode
from ottla.replication.waiting.purgatory import Purgatory
from ottla.replication.waiting.timing_wheel import TimerTask, TimingWheel
from ottla.storage.disk.clock import Clock

LOOK_MS: Final = 1_000
"""How often sessions of closed connections are looked for, ms."""


class ShareLeader:
    """See the module."""

    __slots__ = ("_timer", "_timing_wheel", "acknowledged", "led", "positions", "purgatory", "sessions", "settings")

    def __init__(
        self,
        config: BrokerConfig,
        settings: ShareSettings,
        access: StateAccess,
        timing_wheel: TimingWheel,
        clock: Clock,
        positions: Positions,
    ) -> None:
        self.settings = settings
        self.led = LedPartitions(settings, access, timing_wheel, clock)
        self.purgatory = Purgatory("ShareFetch", timing_wheel, config[SHARE_FETCH_PURGATORY_PURGE_INTERVAL_REQUESTS])
        self.sessions = ShareSessions(config[GROUP_SHARE_MAX_SHARE_SESSIONS], self.release, self.led.on_group_idle)
        self.acknowledged: Counter[int] = Counter()
        """Records that members have acknowledged, by type."""
        self._timing_wheel = timing_wheel
        self._timer: TimerTask | None = None
        self.positions = positions

    def start(self) -> None:
        """Look for sessions of closed connections from now on."""
        self._timer = self._timing_wheel.add(LOOK_MS, self._look)

    def stop(self) -> None:
        """Look no more."""
        if self._timer is not None:
            self._timer.cancel()

    def _look(self) -> None:
        self.sessions.end_lost()
        self.start()

    def release(self, session: ShareSession, then: Callable[[], object] = lambda: None) -> None:
        """Make the records of a session that has ended available, and call `then` when that is stored."""
        group_id, member_id = session.key
        found = self.led.among(group_id, session.partitions)
        left = [1 + len(found)]

        def on_released(error: ErrorCode) -> None:
            left[0] -= 1
            if not left[0]:
                then()

        for led in found:
            self.led.release(led, member_id, on_released)
        on_released(ErrorCode.NONE)
