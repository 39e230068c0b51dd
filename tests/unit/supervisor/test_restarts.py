"""When a supervised broker is started again, given up, or left alone."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ottla.supervisor.restarts import FIRST_PAUSE_SECONDS, LONGEST_PAUSE_SECONDS, STABLE_SECONDS, Effect, NotNow, State, Supervised

KILLED = -9


def a_broker(patience: int = 3) -> Supervised:
    """One that was told to start."""
    broker = Supervised(1, patience)
    assert broker.on_start() is Effect.LAUNCH
    return broker


def a_ready_broker() -> Supervised:
    broker = a_broker()
    broker.on_ready(now=0.0)
    return broker


def test_a_broker_that_dies_is_started_again_after_the_shortest_pause() -> None:
    broker = a_ready_broker()
    assert broker.on_exit(KILLED, "", now=100.0) is Effect.WAIT
    assert (broker.state, broker.pause_seconds) == (State.WAITING, FIRST_PAUSE_SECONDS)
    assert broker.on_pause_over() is Effect.LAUNCH
    assert (broker.state, broker.restarts, broker.reason) == (State.STARTING, 1, "ended by signal 9")


def test_pauses_double_up_to_the_longest_while_it_dies_soon_after_it_was_ready() -> None:
    broker = a_ready_broker()
    pauses = []
    for _ in range(9):
        broker.on_exit(KILLED, "", now=1.0)
        pauses.append(broker.pause_seconds)
        broker.on_pause_over()
        broker.on_ready(now=0.5)
    assert pauses == sorted(pauses)
    assert pauses[:3] == [0.1, 0.2, 0.4]
    assert pauses[-1] == LONGEST_PAUSE_SECONDS
    assert broker.state is State.READY


def test_a_broker_that_served_for_a_while_begins_with_the_shortest_pause_again() -> None:
    broker = a_ready_broker()
    for _ in range(4):
        broker.on_exit(KILLED, "", now=1.0)
        broker.on_pause_over()
        broker.on_ready(now=2.0)
    broker.on_exit(KILLED, "", now=2.0 + STABLE_SECONDS)
    assert broker.pause_seconds == FIRST_PAUSE_SECONDS


def test_a_broker_that_never_gets_ready_is_given_up_and_says_why() -> None:
    broker = a_broker(patience=3)
    effects = []
    for _ in range(3):
        effects.append(broker.on_exit(1, "the port is taken", now=1.0))
        broker.on_pause_over()
    assert effects == [Effect.WAIT, Effect.WAIT, Effect.NOTHING]
    assert (broker.state, broker.reason) == (State.FAILED, "ended with status 1: the port is taken")


def test_a_first_start_that_fails_slowly_is_given_up_sooner() -> None:
    broker = a_broker(patience=12)
    effects = []
    for now in (18.0, 37.0, 56.0):
        effects.append(broker.on_exit(1, "no session with ZooKeeper", now))
        broker.on_pause_over()
    assert effects == [Effect.WAIT, Effect.WAIT, Effect.NOTHING]
    assert broker.state is State.FAILED


def test_a_broker_that_has_served_is_not_given_up_sooner() -> None:
    broker = a_broker(patience=12)
    broker.on_ready(now=0.0)
    for at in range(11):
        assert broker.on_exit(1, "no session with ZooKeeper", now=20.0 * at) is Effect.WAIT
        broker.on_pause_over()
    assert broker.on_exit(1, "no session with ZooKeeper", now=240.0) is Effect.NOTHING


def test_a_broker_that_was_given_up_can_be_started_by_hand() -> None:
    broker = a_broker(patience=1)
    broker.on_exit(1, "no", now=1.0)
    assert broker.on_start() is Effect.LAUNCH
    assert (broker.state, broker.reason) == (State.STARTING, "")


def test_a_broker_that_somebody_stopped_stays_down() -> None:
    broker = a_ready_broker()
    assert broker.on_exit(0, "", now=50.0) is Effect.NOTHING
    assert broker.state is State.STOPPED


def test_a_broker_that_was_told_to_stop_is_not_started_again_whatever_its_status() -> None:
    broker = a_ready_broker()
    assert broker.on_stop() is Effect.TERMINATE
    assert broker.on_exit(KILLED, "", now=50.0) is Effect.NOTHING
    assert (broker.state, broker.reason) == (State.STOPPED, "")


def test_a_broker_that_stops_already_gets_no_second_signal_which_would_force_its_end() -> None:
    broker = a_ready_broker()
    assert [broker.on_stop() for _ in range(2)] == [Effect.TERMINATE, Effect.NOTHING]
    assert broker.state is State.STOPPING


def test_a_broker_that_is_stopped_while_it_waits_for_its_next_start_is_not_started() -> None:
    broker = a_ready_broker()
    broker.on_exit(KILLED, "", now=1.0)
    assert broker.on_stop() is Effect.NOTHING
    assert broker.on_pause_over() is Effect.NOTHING
    assert broker.state is State.STOPPED


def test_a_killed_broker_comes_back_unless_it_is_to_stay_down() -> None:
    broker = a_ready_broker()
    assert broker.on_kill(stays_down=False) is Effect.KILL
    assert broker.on_exit(KILLED, "", now=50.0) is Effect.WAIT
    broker.on_pause_over()
    broker.on_ready(now=51.0)
    assert broker.on_kill(stays_down=True) is Effect.KILL
    assert broker.on_exit(KILLED, "", now=99.0) is Effect.NOTHING
    assert broker.state is State.STOPPED


def test_only_a_ready_broker_is_paused_and_only_a_paused_one_goes_on() -> None:
    broker = a_broker()
    with pytest.raises(NotNow, match="broker 1 is starting"):
        broker.on_pause()
    with pytest.raises(NotNow, match="not paused"):
        broker.on_resume()
    broker.on_ready(now=0.0)
    assert (broker.on_pause(), broker.state) == (Effect.PAUSE, State.PAUSED)
    assert (broker.on_resume(), broker.state) == (Effect.RESUME, State.READY)


def test_what_is_so_already_is_refused() -> None:
    broker = a_ready_broker()
    with pytest.raises(NotNow, match="ready already"):
        broker.on_start()
    broker.on_stop()
    broker.on_exit(0, "", now=1.0)
    with pytest.raises(NotNow, match="stopped already"):
        broker.on_stop()
    with pytest.raises(NotNow, match="cannot be killed"):
        broker.on_kill(stays_down=False)


EVENTS = st.lists(
    st.one_of(
        st.sampled_from(["start", "ready", "over", "stop", "kill", "down", "pause", "resume"]),
        st.integers(-15, 1),
    ),
    max_size=40,
)


@settings(max_examples=200, deadline=None)
@given(EVENTS)
def test_there_is_at_most_one_process_whatever_happens(events: list[str | int]) -> None:
    broker = Supervised(0, patience=3)
    running = False
    for now, event in enumerate(events):
        effect = Effect.NOTHING
        try:
            if isinstance(event, int):
                if not running:
                    continue
                running = False
                effect = broker.on_exit(event, "", float(now))
            else:
                effect = {
                    "start": broker.on_start,
                    "ready": lambda: broker.on_ready(0.0),
                    "over": broker.on_pause_over,
                    "stop": broker.on_stop,
                    "kill": lambda: broker.on_kill(stays_down=False),
                    "down": lambda: broker.on_kill(stays_down=True),
                    "pause": broker.on_pause,
                    "resume": broker.on_resume,
                }[event]()
        except NotNow:
            continue
        if effect is Effect.LAUNCH:
            assert not running
            running = True
        if effect in {Effect.KILL, Effect.TERMINATE, Effect.PAUSE, Effect.RESUME}:
            assert running
        assert broker.state.has_process == running
