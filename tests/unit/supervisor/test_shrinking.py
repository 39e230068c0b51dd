"""The order in which the last brokers of a host are drained, stopped and removed; what an interruption or a new topic changes of it."""

from pathlib import Path
from typing import Any

import pytest

from ottla.client.errors import ClientError
from ottla.protocol.client_security import PLAINTEXT
from ottla.supervisor import control, shrinking
from ottla.supervisor.shrinking import HowToDrain, shrink

HOW = HowToDrain(100, None, False)


class Stage:
    """A supervisor and a cluster in memory. `done` has the steps in their order."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, states: dict[int, str]) -> None:
        self.states = states
        self.done: list[str] = []
        self.left = [0]
        """The partitions that are left on the brokers at each look after a stop; the last number repeats."""
        self.refusal: ClientError | None = None
        monkeypatch.setattr(control, "ask", self._ask)
        monkeypatch.setattr(shrinking, "Cluster", self._client)
        monkeypatch.setattr(shrinking, "drain", self._drain)
        monkeypatch.setattr(shrinking, "forget_settings", lambda _, broker_id: self.done.append(f"forget {broker_id}"))
        monkeypatch.setattr(shrinking, "left_on", self._left_on)
        self.without_leader: list[set[int]] = []
        """The brokers with replicas of partitions without a leader at each look; none after the last one."""
        monkeypatch.setattr(shrinking, "_without_leader", lambda _: self.without_leader.pop(0) if self.without_leader else set())
        monkeypatch.setattr(shrinking, "_POLL_SECONDS", 0.0)
        monkeypatch.setattr(shrinking, "_alive", lambda _: {number for number, state in self.states.items() if state == "ready"})

    def shrink(self, count: int) -> list[int]:
        return shrink(Path("/host"), PLAINTEXT, count, HOW, lambda _, __: None, 5.0)

    def _ask(self, _: Path, request: dict[str, Any], __: float) -> dict[str, Any]:
        command, broker_id = request["command"], request.get("id")
        if command == "status":
            return {"brokers": [{"id": each, "host": "::1", "port": 9092 + each, "state": state} for each, state in self.states.items()]}
        self.done.append(f"{command} {broker_id}")
        if command == "remove":
            del self.states[broker_id]
        else:
            self.states[broker_id] = {"stop": "stopped", "start": "ready"}[command]
        return {}

    def _client(self, bootstrap: str, **_: object) -> Any:
        self.done.append(f"through {bootstrap}")

        class Client:
            def __enter__(self) -> "Client":
                return self

            def __exit__(self, *_: object) -> None:
                pass

        return Client()

    def _drain(self, _: object, leaving: set[int], *__: object, **___: object) -> int:
        if self.refusal is not None:
            raise self.refusal
        self.done.append(f"drain {sorted(leaving)}")
        return 0

    def _left_on(self, *_: object) -> dict[int, int]:
        return dict.fromkeys(range(self.left.pop(0) if len(self.left) > 1 else self.left[0]))


def test_the_last_brokers_are_drained_then_stopped_and_then_removed_from_the_last_on(monkeypatch: pytest.MonkeyPatch) -> None:
    stage = Stage(monkeypatch, {0: "ready", 1: "ready", 2: "ready", 3: "ready"})
    assert stage.shrink(2) == [2, 3]
    steps = ["drain [2, 3]", "forget 2", "forget 3", "stop 2", "stop 3", "remove 3", "remove 2"]
    assert stage.done == ["through [::1]:9092,[::1]:9093", *steps]
    assert stage.shrink(2) == []


def test_brokers_start_again_for_a_topic_that_was_created_before_they_stopped(monkeypatch: pytest.MonkeyPatch) -> None:
    stage = Stage(monkeypatch, {0: "ready", 1: "ready"})
    stage.left = [1, 0]
    assert stage.shrink(1) == [1]
    assert stage.done[1:] == ["drain [1]", "forget 1", "stop 1", "start 1", "drain [1]", "forget 1", "stop 1", "remove 1"]


def test_a_broker_that_an_interrupted_command_has_stopped_is_not_stopped_again(monkeypatch: pytest.MonkeyPatch) -> None:
    stage = Stage(monkeypatch, {0: "ready", 1: "stopped", 2: "failed"})
    assert stage.shrink(1) == [1, 2]
    assert stage.done[1:] == ["drain [1, 2]", "remove 2", "remove 1"]


def test_a_stopped_broker_starts_again_if_it_has_a_partition_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    stage = Stage(monkeypatch, {0: "ready", 1: "stopped", 2: "stopped", 3: "failed"})
    stage.without_leader = [{0, 2, 3}, {2, 3}]
    assert stage.shrink(1) == [1, 2, 3]
    assert stage.without_leader == []
    assert stage.done[1:] == ["start 2", "drain [1, 2, 3]", "forget 2", "stop 2", "remove 3", "remove 2", "remove 1"]


def test_a_refused_drain_stops_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    stage = Stage(monkeypatch, {0: "ready", 1: "ready"})
    stage.refusal = ClientError("t-0 has 2 replicas, and only 1 other broker is alive")
    with pytest.raises(ClientError, match="t-0 has 2 replicas"):
        stage.shrink(1)
    assert stage.states == {0: "ready", 1: "ready"}


def test_without_a_broker_that_stays_and_serves_nothing_is_begun(monkeypatch: pytest.MonkeyPatch) -> None:
    stage = Stage(monkeypatch, {0: "paused", 1: "ready"})
    with pytest.raises(ClientError, match="none of the brokers that would stay is ready"):
        stage.shrink(1)
    assert stage.done == []
