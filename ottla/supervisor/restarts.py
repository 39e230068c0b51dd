"""Decides when one supervised broker is started, restarted or given up: a pure state machine, whose effects
`supervisor` carries out.

A broker that dies is restarted: at once the first time, then after pauses that double, until it has served for a while.
A broker that ends with status 0 was stopped by its process id and stays down. A broker that repeatedly ends before it
was ready is given up: the cause is its configuration, its port or its directory, which a restart does not change. The
reason is shown until `on_start`.
"""

from dataclasses import dataclass
from enum import Enum

FIRST_PAUSE_SECONDS = 0.1
LONGEST_PAUSE_SECONDS = 5.0
STABLE_SECONDS = 10.0
"""After this much uptime the restart back-off starts again at its minimum, seconds."""
FEWEST_FAILURES, LONGEST_TRY_SECONDS = 3, 30.0
"""Failures, and seconds since the first of them, after which a first start is given up, whatever `patience` is: without a
ZooKeeper each attempt takes 18 s."""


class State(Enum):
    """The state of a broker as `status` shows it."""

    STARTING = "starting"
    READY = "ready"
    PAUSED = "paused"
    WAITING = "waiting"
    STOPPING = "stopping"
    STOPPED = "stopped"
    FAILED = "failed"

    @property
    def has_process(self) -> bool:
        """Whether a broker in this state has a process."""
        return self in {State.STARTING, State.READY, State.PAUSED, State.STOPPING}


class Effect(Enum):
    """The action for the supervisor. `WAIT` is followed by `on_pause_over` after `pause_seconds`."""

    NOTHING = "nothing"
    LAUNCH = "launch"
    WAIT = "wait"
    KILL = "kill"
    TERMINATE = "terminate"
    PAUSE = "pause"
    RESUME = "resume"


class NotNow(Exception):
    """The command is not possible in the broker's current state; the text says why."""


@dataclass
class Supervised:
    """One broker. `patience` is the number of failures in a row before it was ready after which it is given up."""

    broker_id: int
    patience: int
    state: State = State.STOPPED
    restarts: int = 0
    reason: str = ""
    """The reason of its last unwanted end."""
    pause_seconds: float = 0.0
    _wanted: bool = False
    _was_ready: bool = False
    _ready_at: float = 0.0
    _failures: int = 0
    _ever_ready: bool = False
    _failing_since: float = 0.0

    def on_start(self) -> Effect:
        """An operator starts it. Raises NotNow."""
        if self.state not in {State.STOPPED, State.FAILED, State.WAITING}:
            raise NotNow(f"broker {self.broker_id} is {self.state.value} already")
        self._wanted = True
        self._failures = 0
        self._ever_ready = False
        self.reason = ""
        return self._launch()

    def on_ready(self, now: float) -> Effect:
        """It reported that it serves."""
        if self.state is State.STARTING:
            self.state = State.READY
            self._was_ready = self._ever_ready = True
            self._ready_at = now
        return Effect.NOTHING

    def on_exit(self, status: int, said: str, now: float) -> Effect:
        """Its process has ended, with a negative signal number or an exit status; `said` is the last line of its log."""
        served = self._was_ready
        stable = served and now - self._ready_at >= STABLE_SECONDS
        self._was_ready = False
        if not self._wanted:
            self.state = State.STOPPED
            return Effect.NOTHING
        if status == 0:
            self._wanted = False
            self.state = State.STOPPED
            self.reason = "stopped by its process id"
            return Effect.NOTHING
        ended = f"ended by signal {-status}" if status < 0 else f"ended with status {status}"
        self.reason = f"{ended}: {said}" if said else ended
        self._failures = 1 if stable else self._failures + 1
        if self._failures == 1:
            self._failing_since = now
        if not served and self._is_hopeless(now):
            self._wanted = False
            self.state = State.FAILED
            return Effect.NOTHING
        self.state = State.WAITING
        self.pause_seconds = min(FIRST_PAUSE_SECONDS * 2 ** min(self._failures - 1, 10), LONGEST_PAUSE_SECONDS)
        return Effect.WAIT

    def on_pause_over(self) -> Effect:
        """The pause before a restart is over."""
        if self.state is not State.WAITING:
            return Effect.NOTHING
        self.restarts += 1
        return self._launch()

    def on_stop(self) -> Effect:
        """An operator stops it. Raises NotNow."""
        if self.state is State.STOPPED:
            raise NotNow(f"broker {self.broker_id} is stopped already")
        self._wanted = False
        if self.state is State.STOPPING:  # a second signal would cut its hand-over of leadership short
            return Effect.NOTHING
        if not self.state.has_process:
            self.state = State.STOPPED
            return Effect.NOTHING
        self.state = State.STOPPING
        return Effect.TERMINATE

    def on_kill(self, stays_down: bool) -> Effect:
        """An operator kills it as in a crash. Raises NotNow."""
        self._require_process("be killed")
        if stays_down:
            self._wanted = False
        return Effect.KILL

    def on_pause(self) -> Effect:
        """An operator suspends it. Raises NotNow."""
        if self.state is not State.READY:
            raise NotNow(f"broker {self.broker_id} is {self.state.value}; only one that is ready can be paused")
        self.state = State.PAUSED
        return Effect.PAUSE

    def on_resume(self) -> Effect:
        """An operator resumes it. Raises NotNow."""
        if self.state is not State.PAUSED:
            raise NotNow(f"broker {self.broker_id} is {self.state.value}, not paused")
        self.state = State.READY
        return Effect.RESUME

    def _is_hopeless(self, now: float) -> bool:
        if self._failures >= self.patience:
            return True
        return not self._ever_ready and self._failures >= FEWEST_FAILURES and now - self._failing_since >= LONGEST_TRY_SECONDS

    def _launch(self) -> Effect:
        self.state = State.STARTING
        return Effect.LAUNCH

    def _require_process(self, what: str) -> None:
        if not self.state.has_process:
            raise NotNow(f"broker {self.broker_id} is {self.state.value}; it cannot {what}")
