"""Reads and changes the levels of this process's loggers, which are the resource BROKER_LOGGER (KIP-412).

Kafka's Log4jController and RuntimeLoggerManager. A change lasts until the broker stops. The names are those of Python's
loggers, the packages and modules of this broker; the root logger is called `root`. Well-known names of Apache Kafka's
loggers are aliases (`ottla.broker.logs.kafka_names`).
"""

import logging
from collections.abc import Sequence

from ottla.broker.logs.kafka_names import KAFKA_LOGGERS
from ottla.config.schema.describe import ConfigEntry, LogLevel, logger_entry
from ottla.controller.admin.config_admin import OpType
from ottla.controller.errors import ControllerError, InvalidAdminRequest, InvalidTopicConfig

logger = logging.getLogger(__name__)

ROOT_LOGGER = "root"


def describe_loggers(names: Sequence[str] | None = None) -> list[ConfigEntry]:
    """The level of every existing logger, or of those in `names`."""
    wanted = None if names is None else set(names)
    found = {ROOT_LOGGER: logging.getLogger()}
    found.update((name, logging.getLogger(name)) for name in list(logging.root.manager.loggerDict))
    found.update((alias, logging.getLogger(name)) for alias, name in KAFKA_LOGGERS.items())
    return [
        logger_entry(name, _level_name(each.getEffectiveLevel()))
        for name, each in sorted(found.items())
        if wanted is None or name in wanted
    ]


def alter_loggers(ops: Sequence[tuple[str, str | None, int]], *, validate_only: bool = False) -> None:
    """Set or unset levels: (logger, level, operation) each. All are checked before any is changed.

    Raises InvalidTopicConfig for an unknown logger or level, InvalidAdminRequest for an operation that loggers do not
    have, ControllerError for an unknown operation.
    """
    for name, level, op in ops:
        _check(name, level, op)
    if validate_only:
        return
    for name, level, op in ops:
        changed = _existing(name)
        assert changed is not None
        if op == OpType.SET:
            changed.setLevel(LogLevel[level or ""])
            logger.warning("updated the log level of %s to %s", name, level)
        else:
            changed.setLevel(logging.NOTSET)
            logger.warning("unset the log level of %s", name)


def _check(name: str, level: str | None, op: int) -> None:
    if op in (OpType.SET, OpType.DELETE):
        if _existing(name) is None:
            raise InvalidTopicConfig(f"Logger {name} does not exist!")
        if op == OpType.DELETE and name == ROOT_LOGGER:
            raise InvalidAdminRequest(f"Removing the log level of the {ROOT_LOGGER} logger is not allowed")
        if op == OpType.SET and level not in LogLevel.__members__:
            raise InvalidTopicConfig(
                f"Cannot set the log level of {name} to {level} as it is not a supported log level. "
                f"Valid log levels are {', '.join(sorted(LogLevel.__members__))}"
            )
        return
    if op in (OpType.APPEND, OpType.SUBTRACT):
        raise InvalidAdminRequest(f"{OpType(op).name} operation is not allowed for the BROKER_LOGGER resource")
    # Apache Kafka fails here with an exception, and answers UNKNOWN_SERVER_ERROR.
    raise ControllerError(f"Unknown operation type {op} is not allowed for the BROKER_LOGGER resource")


def _existing(name: str) -> logging.Logger | None:
    if name == ROOT_LOGGER:
        return logging.getLogger()
    if name in KAFKA_LOGGERS:
        return logging.getLogger(KAFKA_LOGGERS[name])
    # Packages as well as modules: the level of `storage` applies to all modules in it.
    return logging.getLogger(name) if name in logging.root.manager.loggerDict else None


def _level_name(level: int) -> str:
    """The lowest of Kafka's levels at or above `level`: Python's CRITICAL is Kafka's FATAL."""
    return next((each.name for each in LogLevel if level <= each), LogLevel.FATAL.name)
