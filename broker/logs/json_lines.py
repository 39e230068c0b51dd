"""Formats log lines as JSON, one object a line, with the values of the message as fields.

| field | content |
|---|---|
| `time` | RFC 3339, UTC, milliseconds |
| `level`, `logger`, `message` | as in a text line; the levels are Python's |
| `event` | the id of a line that docs/operations.md lists; a later version may word the line differently, the id stays |
| `broker`, `cluster` | ids of the process's broker, once they are known |
| `stack` | a stack trace, in one string |
| others | the values of the message (`ottla.broker.logs.values`); a partition is `topic` and `partition` |

`ecs` has the same under the names of the Elastic Common Schema, and the values below `ottla.`.
"""

from __future__ import annotations

import json
import logging
import re
from datetime import UTC, datetime
from typing import Final

from ottla.broker.logs.events import event_of
from ottla.broker.logs.values import Plain, names_of

ECS_NAMES: Final = {
    "time": "@timestamp",
    "level": "log.level",
    "logger": "log.logger",
    "message": "message",
    "event": "event.code",
    "stack": "error.stack_trace",
    "broker": "service.node.name",
    "cluster": "orchestrator.cluster.id",
    "error": "error.message",
}
"""Field -> its name in the Elastic Common Schema; ECS 8."""

_OWN: Final = frozenset({"time", "level", "logger", "message", "event", "broker", "cluster", "stack"})
_PARTITION: Final = re.compile(r"(.+)-(\d+)")


class JsonLines(logging.Formatter):
    """See the module. `identity` has the fields of the process, which every line gets."""

    def __init__(self, layout: str) -> None:
        """`layout` is `json` or `ecs`."""
        super().__init__()
        self.identity: dict[str, Plain] = {}
        self._is_ecs = layout == "ecs"

    def format(self, record: logging.LogRecord) -> str:
        """The line, without an end of line."""
        message = record.getMessage()
        own: dict[str, Plain] = {
            "time": datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z"),
            "level": record.levelname,
            "logger": record.name,
            "message": message,
        }
        event = event_of(message)
        if event is not None:
            own["event"] = event
        own.update(self.identity)
        if record.exc_text:
            own["stack"] = record.exc_text
        values = values_of(record)
        if self._is_ecs:
            line = {ECS_NAMES[name]: str(value) if name == "broker" else value for name, value in own.items()}
            line["ecs.version"] = "8.11"
            line.update((ECS_NAMES.get(name, f"ottla.{name}"), value) for name, value in values.items())
        else:
            line = {**own, **values}
        return json.dumps(line, ensure_ascii=False)


def values_of(record: logging.LogRecord) -> dict[str, Plain]:
    """The values of the record's message by name; a name that a line uses itself gets `value_` in front."""
    values: tuple[Plain, ...] = record.__dict__.get("values", ())
    if not values:
        return {}
    found: dict[str, Plain] = {}
    for name, value in zip(names_of(record.name, record.__dict__["template"]), values, strict=False):
        if name is None:
            continue
        partition = _PARTITION.fullmatch(value) if name == "topic_partition" and isinstance(value, str) else None
        if partition is not None:
            found["topic"], found["partition"] = partition[1], int(partition[2])
        else:
            found[f"value_{name}" if name in _OWN else name] = value
    return found
