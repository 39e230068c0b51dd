"""Starts the broker of a container by the variables of Apache Kafka's and Confluent's images: `python -m ottla.container`.

Programs that start such images, like the Kafka modules of testcontainers, ask for KRaft, and wait for a line of Apache Kafka's log. The
variables that make a process a KRaft controller are left out, and those lines are printed when the broker is ready.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from pathlib import Path

from ottla.config.loader import property_name

NO_ZOOKEEPER = Path("/etc/kafka/no-zookeeper")
"""The image's `zookeeper-server-start` makes this file. A ZooKeeper beside a single broker is not needed: its own store does that work."""
_ROLES, _NODE = "KAFKA_PROCESS_ROLES", "KAFKA_NODE_ID"
_NAMES = "KAFKA_CONTROLLER_LISTENER_NAMES"
_LISTS = ("KAFKA_LISTENERS", "KAFKA_ADVERTISED_LISTENERS", "KAFKA_LISTENER_SECURITY_PROTOCOL_MAP")
_DEFAULT_LISTENERS = "PLAINTEXT://:9092"
_DEFAULT_ADVERTISED = "PLAINTEXT://localhost:9092"


class NotABroker(Exception):
    """One line: why no broker is started."""


def settled(given: Mapping[str, str], *, has_zookeeper: bool = True, is_alone: bool = True) -> tuple[dict[str, str], list[str]]:
    """The variables for `ottla serve`, and the names of those that are left out. Raises NotABroker.

    Without listeners the broker is advertised as localhost:9092, which is where a published port 9092 is for the host. If the variables
    are not alone, arguments of the command may set the listeners.
    """
    found = dict(given)
    left_out = []
    roles = [each.strip() for each in found.get(_ROLES, "broker").split(",")]
    if "broker" not in roles:
        raise NotABroker(
            f"{_ROLES}={found[_ROLES]} asks for a KRaft controller without a broker: brokers of Ottla need none, start them alone"
        )
    if _ROLES in found:
        controllers = {each.strip() for each in found.get(_NAMES, "").split(",")}
        for name in _LISTS:
            if name in found:
                entries = found[name].split(",")
                found[name] = ",".join(each for each in entries if each.strip().partition(":")[0] not in controllers)
        left_out = [name for name in found if name == _ROLES or property_name(name).startswith("controller.")]
    if not has_zookeeper and "KAFKA_ZOOKEEPER_CONNECT" in found:
        left_out.append("KAFKA_ZOOKEEPER_CONNECT")
    for name in left_out:
        del found[name]
    if is_alone and found.get("KAFKA_LISTENERS", _DEFAULT_LISTENERS) == _DEFAULT_LISTENERS:
        found.setdefault("KAFKA_ADVERTISED_LISTENERS", _DEFAULT_ADVERTISED)
    return found, sorted(left_out)


def announcements(variables: Mapping[str, str]) -> list[str]:
    """The lines of Apache Kafka's log for which programs wait."""
    node = variables.get(_NODE) or variables.get("KAFKA_BROKER_ID") or "0"
    return [f"[KafkaServer id={node}] started", "Kafka Server started", "Transitioning from RECOVERY to RUNNING"]


def main() -> None:
    """Be `ottla serve`, with the arguments of this command."""
    from ottla.cli.main import main as command_line

    try:
        variables, left_out = settled(os.environ, has_zookeeper=not NO_ZOOKEEPER.exists(), is_alone=not sys.argv[1:])
    except NotABroker as reason:
        raise SystemExit(f"ottla: {reason}") from None
    if left_out:
        print(f"ottla: the metadata is in the broker's own store; left out: {', '.join(left_out)}", file=sys.stderr, flush=True)
    os.environ.clear()
    os.environ.update(variables)
    options = [part for line in announcements(variables) for part in ("--announce", line)]
    command_line(["serve", *options, *sys.argv[1:]])


if __name__ == "__main__":
    main()
