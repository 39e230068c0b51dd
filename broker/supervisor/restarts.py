"""One supervised broker: what is wanted of it, what it does, and when it is started again. Pure; `supervisor` carries out the effects.

A broker that dies is started again: at once the first time, then after pauses that double, until it has served for a while. One that ends
with status 0 was stopped by somebody and stays down. One that ends before it was ever ready, several times on end, is given up: then it is
its configuration, its port or its directory, and no further start mends that; the reason stays to be seen until `on_start`.
"""

from dataclasses import dataclass
from enum import Enum

FIRST_PAUSE_SECONDS = 0.1
LONGEST_PAUSE_SECONDS = 5.0
STABLE_SECONDS = 10.0
FEWEST_FAILURES, LONGEST_TRY_SECONDS = 3, 30.0
"""A first start that failed so often, for so long, is given up whatever the patience: a ZooKeeper that is not there costs each 18 s."""
"""Who has served for so long begins with the shortest pause again."""


class State(Enum):
    """What `status` shows."""

    STARTING = "starting"
    READY = "ready"
    PAUSED = "paused"
    WAITING = "waiting"
    STOPPING = "stopping"
    STOPPED = "stopped"
    FAILED = "failed"

    @property
    def has_process(self) -> bool:
        """Whether there is a process in this state."""
        return self in {State.STARTING, State.READY, State.PAUSED, State.STOPPING}


class Effect(Enum):
    """What the supervisor has to do for a broker. `WAIT` is followed by `on_pause_over` after `pause_seconds`."""

    NOTHING = "nothing"
    LAUNCH = "launch"
    WAIT = "wait"
    KILL = "kill"
    TERMINATE = "terminate"
    PAUSE = "pause"
    RESUME = "resume"


class NotNow(Exception):
    """The command makes no sense in the state that the broker is in; the text says why."""


@dataclass
class Supervised:
    """One broker. `patience` is how often on end it may fail before it was ready."""

    broker_id: int
    patience: int
    state: State = State.STOPPED
    restarts: int = 0
    reason: str = ""
    """Why it ended last, when nobody wanted it to."""
    pause_seconds: float = 0.0
    _wanted: bool = False
    _was_ready: bool = False
    _ready_at: float = 0.0
    _failures: int = 0
    _ever_ready: bool = False
    _failing_since: float = 0.0

    def on_start(self) -> Effect:
        """Somebody wants it to run. Raises NotNow."""
        if self.state not in {State.STOPPED, State.FAILED, State.WAITING}:
            raise NotNow(f"broker {self.broker_id} is {self.state.value} already")
        self._wanted = True
        self._failures = 0
        self._ever_ready = False
        self.reason = ""
        return self._launch()

    def on_ready(self, now: float) -> Effect:
        """It has said that it serves."""
        if self.state is State.STARTING:
            self.state = State.READY
            self._was_ready = self._ever_ready = True
            self._ready_at = now
        return Effect.NOTHING

    def on_exit(self, status: int, said: str, now: float) -> Effect:
        """Its process has ended, with a negative signal number or an exit status; `said` is its last word."""
        served = self._was_ready
        stable = served and now - self._ready_at >= STABLE_SECONDS
        self._was_ready = False
        if not self._wanted:
            self.state = State.STOPPED
            return Effect.NOTHING
        if status == 0:
            self._wanted = False
            self.state = State.STOPPED
            self.reason = "somebody stopped it"
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
        """The pause before another start is over."""
        if self.state is not State.WAITING:
            return Effect.NOTHING
        self.restarts += 1
        return self._launch()

    def on_stop(self) -> Effect:
        """Somebody wants it down. Raises NotNow."""
        if self.state is State.STOPPED:
            raise NotNow(f"broker {self.broker_id} is stopped already")
        self._wanted = False
        if not self.state.has_process:
            self.state = State.STOPPED
            return Effect.NOTHING
        self.state = State.STOPPING
        return Effect.TERMINATE

    def on_kill(self, stays_down: bool) -> Effect:
        """Somebody wants it to die as in a crash. Raises NotNow."""
        self._require_process("be killed")
        if stays_down:
            self._wanted = False
        return Effect.KILL

    def on_pause(self) -> Effect:
        """Somebody wants it to stand still. Raises NotNow."""
        if self.state is not State.READY:
            raise NotNow(f"broker {self.broker_id} is {self.state.value}; only one that is ready can be paused")
        self.state = State.PAUSED
        return Effect.PAUSE

    def on_resume(self) -> Effect:
        """Somebody wants it to go on. Raises NotNow."""
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
