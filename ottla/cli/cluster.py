"""Implements `ottla cluster`: several brokers on this host under a supervisor, which restarts those that die."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from ottla.cli.options import Amount, client_security, command_config_option, command_group, json_option, report_outcomes, reported_errors
from ottla.cli.output import print_json, print_table, say
from ottla.storage.disk.filesystem import make_directory, opener

if TYPE_CHECKING:
    from ottla.protocol.client_security import ClientSecurity
    from ottla.supervisor.layout import Layout

_COMMAND_SECONDS = 90.0
_STATUS_SECONDS = 5.0
_ASK_BROKERS_SECONDS = 2.0

directory_option = click.option(
    "--dir",
    "directory",
    type=click.Path(file_okay=False, path_type=Path),
    default=Path("cluster"),
    show_default=True,
    envvar="OTTLA_CLUSTER_DIR",
    show_envvar=True,
    help="Directory of the cluster: its metadata, data, logs.",
)


@command_group
def cluster() -> None:
    """Run several brokers on this host."""


@cluster.command()
@click.argument("brokers", type=click.IntRange(1, 1000), default=3)
@directory_option
@click.option("--zookeeper", metavar="HOST:PORT[/PATH]", help="Keep the metadata in this ZooKeeper; by default in a file in the directory.")
@click.option(
    "--base-port",
    type=click.IntRange(0, 65535),
    default=9092,
    show_default=True,
    help="Port of the first broker; the others follow. 0 takes free ports, and keeps them.",
)
@click.option("--first-id", type=click.IntRange(0), default=0, show_default=True, help="The id of the first broker.")
@click.option("--host", default="127.0.0.1", show_default=True, help="The address at which the brokers listen.")
@click.option("--racks", type=click.IntRange(1), help="Spread the brokers over this many racks r0, r1, ...; by default each has its own.")
@click.option(
    "--set",
    "settings",
    multiple=True,
    metavar="KEY=VALUE",
    help="For all brokers; {id} in it is the broker's id, {port} its port.",
)
@command_config_option
@click.option("--console", "has_console", is_flag=True, help="Also run `ottla console` for the cluster.")
@click.option(
    "--console-listen", default="127.0.0.1:8080", show_default=True, metavar="HOST:PORT", help="The loopback address of that console."
)
@click.option("--detach", is_flag=True, help="Return when all are ready; they keep running.")
@json_option
def up(
    brokers: int,
    directory: Path,
    zookeeper: str | None,
    base_port: int,
    first_id: int,
    host: str,
    racks: int | None,
    settings: tuple[str, ...],
    command_config: Path | None,
    has_console: bool,
    console_listen: str,
    detach: bool,
    as_json: bool,
) -> None:
    """Start BROKERS brokers (3) and print their addresses once all are ready."""
    from ottla.supervisor import state_file
    from ottla.supervisor.layout import Layout, choose_ports

    directory = directory.absolute()
    command_config = None if command_config is None else command_config.absolute()
    security = client_security(command_config)
    _make(directory)
    if base_port + brokers > 65536:
        raise click.UsageError(f"--base-port {base_port} leaves no room for {brokers} brokers below 65536.")
    ports = choose_ports(range(first_id, first_id + brokers), base_port, state_file.read(directory).ports())
    layout = Layout(directory, ports, racks or brokers, zookeeper, settings, first_id, host, command_config)
    _check_configuration(layout)
    if racks is not None and layout.sets_racks:
        raise click.UsageError("--racks and --set broker.rack=... both define the racks; omit one of them.")
    console = console_listen if has_console else None
    if detach:
        _detach(layout, console, as_json=as_json)
    else:
        _supervise(layout, security, console, as_json=as_json)


def _make(directory: Path) -> None:
    try:
        make_directory(str(directory))
        usable = os.access(directory, os.W_OK | os.X_OK)
        reason = "the directory is not writable"
    except OSError as error:
        usable, reason = False, str(error.strerror)
    if not usable:
        raise SystemExit(f"ottla: {directory} cannot be used for a cluster: {reason}; set another --dir")


def _check_configuration(layout: Layout) -> None:
    """Report an invalid value here, once, instead of in every broker."""
    from ottla.config.broker import BrokerConfig
    from ottla.config.errors import ConfigError
    from ottla.config.keys.general import BROKER_ID
    from ottla.config.keys.own import OTTLA_LOG_FILE

    try:
        configs = [BrokerConfig(layout.properties(broker_id)) for broker_id in layout.broker_ids]
    except ConfigError as error:
        raise SystemExit(f"ottla: {error}") from None
    if [config[BROKER_ID] for config in configs] != list(layout.broker_ids):
        raise SystemExit(
            f"ottla: {BROKER_ID.name} cannot be set for a cluster: every broker has its own; --first-id sets that of the first"
        )
    log_files = [config[OTTLA_LOG_FILE] for config in configs]
    if len(set(log_files)) < len(log_files):
        raise SystemExit(f"ottla: {OTTLA_LOG_FILE.name}={log_files[0]} is one file for several brokers; put {{id}} into its name")


def _supervise(layout: Layout, security: ClientSecurity, listen: str | None, *, as_json: bool) -> None:
    """Run the brokers and, with an address to listen on, a console."""
    import asyncio

    from ottla.broker.logs.setup import set_up_logging
    from ottla.supervisor.console_process import ConsoleFailed, ConsoleProcess
    from ottla.supervisor.supervisor import CannotSupervise, Supervisor

    def on_ready() -> None:
        if as_json:
            _print_brokers(layout, None if console is None else console.address)
            return
        print(f"ottla cluster is ready: {layout.bootstrap}", flush=True)
        if console is not None:
            print(console.line, flush=True)

    async def supervise() -> None:
        await Supervisor(layout, security).run(on_ready)

    set_up_logging()
    console: ConsoleProcess | None = None
    try:
        console = None if listen is None else ConsoleProcess(layout, listen)
        asyncio.run(supervise())
    except (CannotSupervise, ConsoleFailed) as error:
        for line in str(error).splitlines():
            say(f"ottla: {line}")
        raise SystemExit(1) from None
    finally:
        if console is not None:
            console.stop()


def _print_brokers(layout: Layout, console: str | None) -> None:
    """Print the addresses of the brokers, and of a console, as one line of JSON."""
    import json

    brokers = [{"id": broker_id, "address": layout.address(broker_id)} for broker_id in layout.broker_ids]
    found = {"bootstrap_servers": layout.bootstrap, "directory": str(layout.directory), "brokers": brokers}
    print(json.dumps(found if console is None else {**found, "console": console}), flush=True)


def _detach(layout: Layout, listen: str | None, *, as_json: bool) -> None:
    """Run the same cluster in another process, in a session of its own, and wait for its first lines."""
    log_file = layout.directory / "supervisor.log"
    with open(log_file, "ab", opener=opener) as log:
        begin = log.tell()
        supervisor = subprocess.Popen(
            [
                sys.executable,
                "-P",
                "-m",
                "ottla",
                "cluster",
                "up",
                *_arguments(layout),
                *(() if listen is None else ("--console", "--console-listen", listen)),
            ],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=log,
            text=True,
            start_new_session=True,
        )
    assert supervisor.stdout is not None
    with supervisor.stdout:
        try:
            line = supervisor.stdout.readline()
            console_line = "" if listen is None else supervisor.stdout.readline()
        except KeyboardInterrupt:
            # The terminal's signal does not reach the supervisor in its own session.
            supervisor.terminate()
            supervisor.wait()
            raise
    if line:
        if as_json:
            _print_brokers(layout, console_line.rpartition(" ")[2].strip() or None)
        else:
            print(line + console_line, end="")
        return
    status = supervisor.wait()
    with log_file.open("rb") as log:
        log.seek(begin)
        errors = [text for text in log.read().decode(errors="replace").splitlines() if text.startswith("ottla: ")]
    for text in errors or [f"ottla: the supervisor ended with status {status}; {log_file} says why"]:
        say(text)
    raise SystemExit(status or 1)


def _arguments(layout: Layout) -> list[str]:
    """The arguments of an `up` with this layout; ports that the directory has kept are passed as 0."""
    first = layout.ports[0]
    follow_each_other = layout.ports == tuple(range(first, first + len(layout.ports)))
    found = [str(len(layout.ports)), "--dir", str(layout.directory), "--base-port", str(first if follow_each_other else 0)]
    found += ["--first-id", str(layout.first_id), "--host", layout.host]
    if not layout.sets_racks:
        found += ["--racks", str(layout.racks)]
    if layout.zookeeper is not None:
        found += ["--zookeeper", layout.zookeeper]
    for setting in layout.settings:
        found += ["--set", setting]
    if layout.command_config is not None:
        found += ["--command-config", str(layout.command_config)]
    return found


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
    _add_leaderships(brokers, _security_of(directory, command_config))
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


def _security_of(directory: Path, command_config: Path | None) -> ClientSecurity:
    """By the given file, or by the file with which the cluster was started. Raises UsageError."""
    from ottla.supervisor import state_file

    return client_security(command_config or state_file.read(directory).command_config)


def _add_leaderships(brokers: list[dict[str, Any]], security: ClientSecurity) -> None:
    """Add the number of partitions that each broker leads, the number in which it is out of sync, and the controller;
    nothing if no broker answers."""
    from ottla.client.cluster import Cluster
    from ottla.client.errors import ClientError

    bootstrap = ",".join(f"{broker['host']}:{broker['port']}" for broker in brokers if broker["state"] == "ready")
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


def _tell(directory: Path, order: str, broker_id: int | None = None, **more: object) -> None:
    """Send the supervisor an order. Ends with status 1 when it fails."""
    from ottla.supervisor import control

    directory = directory.absolute()
    try:
        answer = control.ask(directory, {"command": order, "id": broker_id, **more}, _COMMAND_SECONDS)
    except control.NoSupervisor as reason:
        raise SystemExit(f"ottla: {reason}") from None
    except TimeoutError:
        raise SystemExit(
            f"ottla: {order} was not done within {_COMMAND_SECONDS:.0f} s; `ottla cluster status` shows the progress"
        ) from None
    if "error" in answer:
        raise SystemExit(f"ottla: {answer['error']}")


def _tell_of_broker(directory: Path, order: str, broker_id: int, done: str, as_json: bool, **more: object) -> None:
    """Send an order for one broker. Without --json its success prints nothing."""
    _tell(directory, order, broker_id, **more)
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
    security = _security_of(directory, command_config)
    restarted: dict[str, str] = {}

    def on_line(line: str) -> None:
        if as_json:
            name, _, result = line.removeprefix("broker ").partition(": ")
            restarted[name] = result
        else:
            print(line, flush=True)

    try:
        restart(SupervisedCluster(directory, security), seconds, on_line, broker_ids)
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
    _tell(directory, "down")
    while supervisor is not None and supervisor.is_alive and supervisor.pid != os.getpid():
        time.sleep(0.01)
    if as_json:
        report_outcomes([(str(directory.absolute()), None)], "stopped", as_json=True)
