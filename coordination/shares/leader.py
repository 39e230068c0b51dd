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
from typing import Final

from ottla.config.broker import BrokerConfig
from ottla.config.keys.shares import GROUP_SHARE_MAX_SHARE_SESSIONS, SHARE_FETCH_PURGATORY_PURGE_INTERVAL_REQUESTS
from ottla.coordination.shares.led_partitions import LedPartition, LedPartitions
from ottla.coordination.shares.positions import Positions
from ottla.coordination.shares.sessions import SessionKey, ShareSession, ShareSessions
from ottla.coordination.shares.settings import ShareSettings
from ottla.coordination.shares.state_access import StateAccess
from ottla.pauses import begin, pause
from ottla.protocol.errors import ErrorCode
from ottla.replication.waiting.purgatory import Purgatory
from ottla.replication.waiting.timing_wheel import TimerTask, TimingWheel
from ottla.storage.disk.clock import Clock

LOOK_MS: Final = 1_000
"""How often sessions of closed connections are looked for, ms."""


class ShareLeader:
    """See the module."""

    __slots__ = ("_releasing", "_timer", "_timing_wheel", "acknowledged", "led", "positions", "purgatory", "sessions", "settings")

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
        self.sessions = ShareSessions(config[GROUP_SHARE_MAX_SHARE_SESSIONS], self.release, self._on_idle)
        self._releasing: Counter[str] = Counter()
        """The sessions of each group whose records are being released."""
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

    def release(self, session: ShareSession) -> None:
        """Make the records of a session that has ended available."""
        self._releasing[session.key.group_id] += 1
        begin(self._release(session.key, self.led.among(session.key.group_id, session.partitions)))

    async def _release(self, key: SessionKey, found: list[LedPartition]) -> None:
        """Release with pauses: many members may leave at the same time, and this broker may coordinate their partitions, too."""
        try:
            for led in found:
                await pause()
                if key in self.sessions:
                    break  # the member has come back, and has its records still
                if not led.is_dead:
                    self.led.release(led, key.member_id, _ignore)
        finally:
            self._releasing[key.group_id] -= 1
            self._on_idle(key.group_id)

    def _on_idle(self, group_id: str) -> None:
        """The last session of a group has ended, or its records are released: without both the deliveries would not be counted."""
        if not self._releasing[group_id]:
            del self._releasing[group_id]
            if not self.sessions.has_group(group_id):
                self.led.on_group_idle(group_id)


def _ignore(_: ErrorCode) -> None:
    """Records whose release cannot be stored are free when their locks end."""
