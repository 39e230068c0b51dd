"""Implements `ottla cluster`: several brokers on this host under a supervisor, which restarts those that die."""

from __future__ import annotations

import os
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from ottla.cli.cluster.orders import directory_option, security_of, tell
from ottla.cli.cluster.sizes import grow, shrink
from ottla.cli.cluster.up import up
from ottla.cli.options import Amount, command_config_option, command_group, json_option, report_outcomes, reported_errors
from ottla.cli.output import print_json, print_table, progress_bar, say

if TYPE_CHECKING:
    from ottla.protocol.client_security import ClientSecurity

_STATUS_SECONDS = 5.0
_ASK_BROKERS_SECONDS = 2.0


@command_group
def cluster() -> None:
    """Run several brokers on this host."""


for each in (up, grow, shrink):
    cluster.add_command(each)


@cluster.command()
@directory_option
@command_config_option
@json_option
def status(directory: Path, command_config: Path | None, as_json: bool) -> None:
    """Show the brokers: processes, states, leaderships. Exit status 1 when there is no supervisor."""
    from ottla.supervisor import control, state_file

    directory = directory.absolute()
    try:
        supervisor = True
        brokers = control.ask(directory, {"command": "status"}, _STATUS_SECONDS)["brokers"]
    except control.NotAllowed as reason:
        raise SystemExit(f"ottla: {reason}") from None
    except control.NoSupervisor:
        supervisor = False
        written = state_file.read(directory)
        alive = {broker_id for broker_id, name in written.processes().items() if name.is_alive}
        brokers = [
            dict(broker) if broker_id in alive else {**broker, "state": "stopped", "pid": None}
            for broker_id, broker in written.brokers.items()
        ]
    except TimeoutError:
        raise SystemExit(
            f"ottla: the supervisor of {directory} does not answer within {_STATUS_SECONDS:g} s: it is suspended, or this host is too busy"
        ) from None
    _add_leaderships(brokers, security_of(directory, command_config))
    with reported_errors():
        if as_json:
            print_json({"directory": str(directory), "supervisor": supervisor, "brokers": brokers})
        elif brokers:
            columns = ("id", "pid", "port", "rack", "state", "restarts", "leads", "behind", "role", "reason")
            rows = [[broker.get(name) for name in columns] for broker in brokers]
            print_table(columns, rows)
    if not supervisor:
        say(f"ottla: no supervisor runs in {directory}; `ottla cluster up` starts one")
        raise SystemExit(1)


def _add_leaderships(brokers: list[dict[str, Any]], security: ClientSecurity) -> None:
    """Add the number of partitions that each broker leads, the number in which it is out of sync, and the controller;
    nothing if no broker answers."""
    from ottla.client.cluster import Cluster
    from ottla.client.errors import ClientError
    from ottla.supervisor.layout import address_of

    bootstrap = ",".join(address_of(broker) for broker in brokers if broker["state"] == "ready")
    if not bootstrap:
        return
    try:
        with Cluster(bootstrap, timeout_seconds=_ASK_BROKERS_SECONDS, security=security) as client:
            answer = client.refresh(None)
    except ClientError as error:
        say(f"ottla: the brokers do not answer which partitions they lead: {error}")
        return
    partitions = [partition for topic in answer.topics for partition in topic.partitions]
    for broker in brokers:
        name = broker["id"]
        broker["leads"] = sum(partition.leader_id == name for partition in partitions)
        broker["behind"] = sum(name in partition.replica_nodes and name not in partition.isr_nodes for partition in partitions)
        broker["role"] = "controller" if name == answer.controller_id else ""


def _tell_of_broker(directory: Path, order: str, broker_id: int, done: str, as_json: bool, **more: bool) -> None:
    """Send an order for one broker. Without --json its success prints nothing."""
    tell(directory, order, broker_id, **more)
    if as_json:
        report_outcomes([(str(broker_id), None)], done, as_json=True)


@cluster.command()
@click.argument("broker_id", type=int)
@click.option("--stays-down", is_flag=True, help="Do not restart it.")
@directory_option
@json_option
def kill(broker_id: int, stays_down: bool, directory: Path, as_json: bool) -> None:
    """Kill a broker as in a crash (SIGKILL). The supervisor restarts it."""
    _tell_of_broker(directory, "kill", broker_id, "killed", as_json, stays_down=stays_down)


@cluster.command()
@click.argument("broker_id", type=int)
@directory_option
@json_option
def pause(broker_id: int, directory: Path, as_json: bool) -> None:
    """Suspend a broker (SIGSTOP), like a machine that hangs."""
    _tell_of_broker(directory, "pause", broker_id, "paused", as_json)


@cluster.command()
@click.argument("broker_id", type=int)
@directory_option
@json_option
def resume(broker_id: int, directory: Path, as_json: bool) -> None:
    """Resume a paused broker."""
    _tell_of_broker(directory, "resume", broker_id, "resumed", as_json)


@cluster.command()
@click.argument("broker_id", type=int)
@directory_option
@json_option
def stop(broker_id: int, directory: Path, as_json: bool) -> None:
    """Stop a broker (SIGTERM) and return when it has ended."""
    _tell_of_broker(directory, "stop", broker_id, "stopped", as_json)


@cluster.command()
@click.argument("broker_id", type=int)
@directory_option
@json_option
def start(broker_id: int, directory: Path, as_json: bool) -> None:
    """Start a broker that was stopped or given up, and return when it is ready."""
    _tell_of_broker(directory, "start", broker_id, "ready", as_json)


@cluster.command("rolling-restart")
@click.argument("broker_ids", type=int, nargs=-1)
@click.option(
    "--timeout",
    "seconds",
    type=Amount(1.0, 86_400.0),
    default=300.0,
    show_default=True,
    metavar="SECONDS",
    help="Time for one restart, and for the replicas to be in sync afterwards.",
)
@directory_option
@command_config_option
@json_option
def rolling_restart(broker_ids: tuple[int, ...], seconds: float, directory: Path, command_config: Path | None, as_json: bool) -> None:
    """Restart the brokers (all without BROKER_IDS) one after the other.

    The next broker is restarted when all replicas are in sync. If a restart fails, the command ends with status 1, and
    does not restart the other brokers.
    """
    from ottla.supervisor import control
    from ottla.supervisor.rolling_restart import SupervisedCluster, Trouble
    from ottla.supervisor.rolling_restart import rolling_restart as restart

    directory = directory.absolute()
    security = security_of(directory, command_config)
    restarted: dict[str, str] = {}

    def on_line(line: str) -> None:
        if as_json:
            name, _, result = line.removeprefix("broker ").partition(": ")
            restarted[name] = result
        else:
            print(line, flush=True)

    try:
        with progress_bar("rolling restart", None, unit="brokers", quiet=as_json) as advance:
            restart(SupervisedCluster(directory, security), seconds, on_line, broker_ids, advance)
    except Trouble as trouble:
        for line in str(trouble).splitlines():
            say(f"ottla: {line}")
        raise SystemExit(1) from None
    except control.NoSupervisor as reason:
        raise SystemExit(f"ottla: {reason}") from None
    except TimeoutError:
        raise SystemExit(
            f"ottla: a broker was not restarted within {seconds:g} s; `ottla cluster status` shows the progress, and no other is restarted"
        ) from None
    finally:
        if as_json:
            report_outcomes(((name, None) for name in restarted), restarted, as_json=True)


@cluster.command()
@directory_option
@json_option
def down(directory: Path, as_json: bool) -> None:
    """Stop all brokers and the supervisor, and return when they have ended."""
    from ottla.supervisor import state_file

    supervisor = state_file.read(directory.absolute()).supervisor
    tell(directory, "down")
    while supervisor is not None and supervisor.is_alive and supervisor.pid != os.getpid():
        time.sleep(0.01)
    if as_json:
        report_outcomes([(str(directory.absolute()), None)], "stopped", as_json=True)
