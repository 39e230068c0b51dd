"""Commands that a test sends to its broker as lines of JSON."""

import asyncio
import json
from types import SimpleNamespace
from typing import Any

import pytest

from ottla.ephemeral.control import Control
from ottla.ephemeral.faults import Faults


def answers_to(*lines: bytes) -> list[dict[str, Any]]:
    """The answers of a broker at an address where nothing listens; it knows the brokers 0 and 2."""

    async def carry_out() -> list[dict[str, Any]]:
        broker: Any = SimpleNamespace(services=SimpleNamespace(metadata=SimpleNamespace(brokers={2: None, 0: None})))
        answered: asyncio.Queue[str] = asyncio.Queue()
        control = Control(Faults(), "127.0.0.1:1", broker, answered.put_nowait)
        for line in lines:
            control.on_line(line)
        async with asyncio.timeout(30):
            return [json.loads(await answered.get()) for _ in lines]

    return asyncio.run(carry_out())


def test_the_live_brokers_are_those_that_the_broker_knows() -> None:
    assert answers_to(b'{"id": 7, "do": "brokers"}') == [{"id": 7, "result": [0, 2]}]


def test_a_clock_is_shifted_by_whole_milliseconds() -> None:
    assert answers_to(b'{"id": 1, "do": "clock", "shift_ms": -5}') == [{"id": 1, "result": None}]


@pytest.mark.parametrize(
    ("line", "error"),
    [
        (b"hello", "a command is a JSON object with the member do"),
        (b"[1]", "a command is a JSON object with the member do"),
        (b'{"id": 1}', "a command is a JSON object with the member do"),
        (b'{"id": 1, "do": "fly"}', "there is no command 'fly'"),
        (b'{"id": 1, "do": ["heal"]}', "there is no command \"['heal']\""),
        (b'{"id": 1, "do": "heal", "what": 2}', "the arguments do not fit: got an unexpected keyword argument 'what'; "),
        (b'{"id": 1, "do": "advance", "hours": 7}', "the arguments do not fit: got an unexpected keyword argument 'hours'; "),
        (b'{"id": 1, "do": "delay"}', "the arguments do not fit: missing 1 required positional argument: 'ms'; the README of pytest-ottla"),
        (b'{"id": 1, "do": "lag", "topic": "t"}', "the arguments do not fit: missing 1 required positional argument: 'group'; "),
        (b'{"id": 1, "do": "fail", "api": 0, "error": null}', "there is no api 0"),
        (b'{"id": 1, "do": "fail", "api": "FETCH", "error": 3}', "there is no error 3"),
        (b'{"id": 1, "do": "clock", "shift_ms": 1e999}', "cannot convert float infinity to integer"),
        (b'{"id": 1, "do": "clock", "shift_ms": "late"}', "invalid literal for int() with base 10: 'late'"),
    ],
)
def test_a_command_that_cannot_be_carried_out_is_answered_in_one_line(line: bytes, error: str) -> None:
    (answer,) = answers_to(line)
    assert error in answer["error"]
    assert "\n" not in answer["error"]


def test_the_refusal_of_a_command_names_all_that_exist() -> None:
    (answer,) = answers_to(b'{"id": 1, "do": "fly"}')
    text, _, names = answer["error"].partition("; there are ")
    assert text == "there is no command 'fly'"
    assert {"advance", "brokers", "consume", "create_topic", "fail", "heal", "lag"} < set(names.split(", "))
    assert names.split(", ") == sorted(names.split(", "))
