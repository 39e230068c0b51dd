"""JSON lines: their fields, the names of the values, event ids, and what every line of the floors would give."""

import importlib.util
import json
import logging
import re
from pathlib import Path
from typing import Any

import pytest

from ottla.broker.logs.events import EVENTS, event_of
from ottla.broker.logs.json_lines import JsonLines
from ottla.broker.logs.kafka_names import KAFKA_LOGGERS, MODULES
from ottla.broker.logs.values import LEVELS, lines_in, names_of, plain_values
from ottla.protocol.topic_partition import TopicPartition

ROOT = Path(__file__).parents[3]
FLOORS = ("broker", "coordination", "controller", "replication", "storage")


def line_of(layout: str, name: str, template: str, *arguments: object, **identity: Any) -> dict[str, Any]:
    record = logging.LogRecord(name, logging.WARNING, "", 0, template, arguments, None)
    record.__dict__.update(template=record.msg, values=plain_values(record.args))
    record.msg, record.args = record.getMessage(), None
    formatter = JsonLines(layout)
    formatter.identity = identity
    line = formatter.format(record)
    assert "\n" not in line
    found: dict[str, Any] = json.loads(line)
    return found


FOLLOWING = (
    "ottla.replication.follower.fetcher_failures",
    "%s: following broker %d failed at offset %d: %s; not fetched until the controller's next request for it",
)


def test_a_line_has_its_values_as_fields() -> None:
    line = line_of("json", *FOLLOWING, TopicPartition("orders-eu", 3), 2, 17, OSError("gone"), broker=1, cluster="abc")
    assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z", line.pop("time"))
    assert line == {
        "level": "WARNING",
        "logger": "ottla.replication.follower.fetcher_failures",
        "message": "orders-eu-3: following broker 2 failed at offset 17: gone; not fetched until the controller's next request for it",
        "event": "replica.stopped",
        "broker": 1,
        "cluster": "abc",
        "topic": "orders-eu",
        "partition": 3,
        "leader_id": 2,
        "offset": 17,
        "error": "gone",
    }


def test_ecs_has_the_same_under_other_names() -> None:
    line = line_of("ecs", *FOLLOWING, TopicPartition("orders", 3), 2, 17, OSError("gone"), broker=1, cluster="abc")
    assert line["event.code"] == "replica.stopped"
    assert line["service.node.name"] == "1"
    assert line["ottla.topic"] == "orders"
    assert line["error.message"] == "gone"
    assert line["log.level"] == "WARNING"
    assert "@timestamp" in line


def test_hostile_values_stay_in_their_field() -> None:
    text = 'a"}\n{"level": "forged \x00 \udce4'
    line = line_of("json", *FOLLOWING, TopicPartition("t", 0), 2, 17, text)
    assert line["error"] == text
    assert line["level"] == "WARNING"


def test_a_value_with_the_name_of_a_field_of_every_line_does_not_replace_it() -> None:
    record = logging.LogRecord(
        "ottla.broker.configuration.loggers", logging.INFO, "", 0, "updated the log level of %s to %s", ("storage", "DEBUG"), None
    )
    record.__dict__.update(template=record.msg, values=plain_values(record.args))
    line = json.loads(JsonLines("json").format(record))
    assert (line["level"], line["value_level"], line["name"]) == ("INFO", "DEBUG", "storage")


def test_lines_of_other_libraries_have_no_values() -> None:
    assert names_of("asyncio", "no such line %s") == ()
    assert names_of("no.such.module", "x %s") == ()


def test_a_stack_trace_is_one_field() -> None:
    record = logging.LogRecord("ottla.broker.server", logging.ERROR, "", 0, "failed", None, None)
    record.exc_text = "Traceback\n  line"
    assert json.loads(JsonLines("json").format(record))["stack"] == "Traceback\n  line"


@pytest.mark.slow
def test_nearly_every_value_of_the_floors_has_a_name() -> None:
    call = re.compile(rf"\.(?:{'|'.join(LEVELS)})\(")  # most modules have none, and need not be parsed
    texts = [path.read_text(encoding="utf-8") for floor in FLOORS for path in (ROOT / floor).rglob("*.py")]
    names = [name for text in texts if call.search(text) for _, found in lines_in(text) for name in found]
    assert len(names) > 400
    assert sum(name is None for name in names) < len(names) / 50


def test_an_event_is_found_by_its_parts_in_their_order() -> None:
    assert event_of("log directory /d is offline: full; its partitions are not served until the broker starts with it again") == (
        "disk.directory-offline"
    )
    assert event_of("its partitions are not served until the broker starts with it again; is offline") is None
    assert event_of("broker 1 is ready") is None


@pytest.mark.parametrize("event", EVENTS)
def test_an_event_id_says_its_subject_and_what_happened(event: str) -> None:
    assert re.fullmatch(r"[a-z]+\.[a-z]+(-[a-z]+)*", event)


@pytest.mark.parametrize("alias", KAFKA_LOGGERS)
def test_every_alias_leads_to_a_package_or_module(alias: str) -> None:
    name = KAFKA_LOGGERS[alias]
    assert importlib.util.find_spec(MODULES.get(name, name)) is not None


def test_a_logger_with_kafkas_name_has_values_too() -> None:
    lines = dict(lines_in((ROOT / "broker" / "security" / "audit_log.py").read_text(encoding="utf-8")))
    assert lines
    template, names = next(iter(lines.items()))
    assert names_of("kafka.authorizer.logger", template) == names
