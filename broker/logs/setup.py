"""Sets up the log of a process: standard error first, then the format and the file that the configuration names.

Before the configuration is known, lines are written at once. From then on neither a slow disk nor a slow reader stops a request
(`ottla.broker.logs.sink`). A broker inside another program uses that program's logging, and calls nothing here.
"""

from __future__ import annotations

import logging
import sys
from collections.abc import Mapping
from typing import TYPE_CHECKING

from ottla.config.broker import BrokerConfig
from ottla.config.schema.describe import LogLevel

if TYPE_CHECKING:
    from ottla.broker.logs.sink import LogSink

logger = logging.getLogger(__name__)

ROOT_LEVEL_VARIABLE = "KAFKA_LOG4J_ROOT_LOGLEVEL"
LOGGERS_VARIABLE = "KAFKA_LOG4J_LOGGERS"


def set_up_logging(level: int = logging.INFO) -> None:
    """Log text to standard error. The command line calls this once, before there is a configuration."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(text_formatter())
    logging.basicConfig(level=level, handlers=[handler])


class _OneLine(logging.Formatter):
    """Escapes control characters in events. The client id or topic of a client must not begin a line that looks like the broker's."""

    def format(self, record: logging.LogRecord) -> str:
        """The event, and a stack trace in lines of its own."""
        text = super().format(record)
        if text.isprintable():
            return text
        event = self.formatMessage(record)
        return one_line(event) + text[len(event) :]


def one_line(text: str) -> str:
    """The text with its control characters escaped."""
    return text if text.isprintable() else "".join(map(_printable, text))


def _printable(char: str) -> str:
    return char if char.isprintable() else char.encode("unicode_escape").decode()


def text_formatter() -> logging.Formatter:
    """Time, level, event, and the module that logs it."""
    return _OneLine("[%(asctime)s,%(msecs)03d] %(levelname)s %(message)s (%(name)s)", "%Y-%m-%d %H:%M:%S")


def apply_configuration(config: BrokerConfig) -> LogSink:
    """Log in the format and to the file of the configuration. Raises ConfigError when the file cannot be opened."""
    from ottla.broker.logs.sink import LogSink

    sink = LogSink(config)
    root = logging.getLogger()
    for handler in list(root.handlers):
        root.removeHandler(handler)
    root.addHandler(sink.handler)
    return sink


def apply_environment(environment: Mapping[str, str]) -> None:
    """Set the levels of the variables that Apache Kafka's container image turns into its log4j.properties.

    `KAFKA_LOG4J_ROOT_LOGLEVEL` is a level, `KAFKA_LOG4J_LOGGERS` has the form `kafka.controller=DEBUG,storage=WARN`. A wrong one is a
    warning, since it stops no broker of Apache Kafka either.
    """
    wanted = [("root", environment[ROOT_LEVEL_VARIABLE])] if environment.get(ROOT_LEVEL_VARIABLE) else []
    wanted += [_name_and_level(each) for each in environment.get(LOGGERS_VARIABLE, "").split(",") if each.strip()]
    for name, level in wanted:
        if level.upper() in LogLevel.__members__:
            logger_of(name).setLevel(LogLevel[level.upper()])
        else:
            logger.warning("the level %s of logger %s does not exist; set one of %s", level, name, ", ".join(LogLevel.__members__))


def _name_and_level(text: str) -> tuple[str, str]:
    name, _, level = text.strip().partition("=")
    return name, level


def logger_of(name: str) -> logging.Logger:
    """The logger of a name of Apache Kafka or of Python; `root` is the root logger."""
    from ottla.broker.logs.kafka_names import KAFKA_LOGGERS

    return logging.getLogger(None if name == "root" else KAFKA_LOGGERS.get(name, name))


def dropped_lines() -> int:
    """Log lines that this process has lost, because they came faster than its thread could write them."""
    return sum(getattr(handler, "dropped", 0) for handler in logging.getLogger().handlers)
