"""Implements `ottla cluster up`: starts brokers on this host under a supervisor, in this process or in one of its own."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterable, Iterator, MutableMapping
from pathlib import Path
from typing import TYPE_CHECKING, Final

import click

from ottla.cli.cluster.orders import directory_option
from ottla.cli.options import client_security, command_config_option, json_option
from ottla.cli.output import counted, say
from ottla.storage.disk.filesystem import make_directory, opener

if TYPE_CHECKING:
    from ottla.protocol.client_security import ClientSecurity
    from ottla.supervisor.layout import Layout

_SETTINGS: Final = "OTTLA_CLUSTER_SETTINGS"
"""The variable by which `up --detach` hands its settings over, as JSON; only the user of a process sees its environment."""


@click.command()
@click.argument("brokers", type=click.IntRange(1, 1000), required=False)
@directory_option
@click.option("--per-core", is_flag=True, help="A broker for each core of this host, if the directory has no cluster yet.")
@click.option(
    "--config",
    "config_file",
    type=click.Path(readable=False, path_type=Path),
    metavar="FILE",
    help="Properties of all brokers; {id}, {port}, {host} and {dir} in a value are those of each broker.",
)
@click.option("--zookeeper", metavar="HOST:PORT[/PATH]", help="Keep the metadata in this ZooKeeper; by default in a file in the directory.")
@click.option(
    "--base-port",
    type=click.IntRange(0, 65535),
    help="Port of the first broker; the others follow. By default those that the directory had last, or 9092. 0 takes free ports.",
)
@click.option("--first-id", type=click.IntRange(0), help="The id of the first broker; 0, or the one of the directory's cluster.")
@click.option("--host", default="127.0.0.1", show_default=True, help="The address at which the brokers listen.")
@click.option("--racks", type=click.IntRange(1), help="Spread the brokers over racks r0, r1, ...; by default this host is the rack of all.")
@click.option("--set", "settings", multiple=True, metavar="KEY=VALUE", help="For all brokers, with the same braces; overrides the file.")
@click.option("--metrics", metavar="HOST:PORT", help="Serve metrics and health of all brokers at this address.")
@command_config_option
@click.option("--console", "has_console", is_flag=True, help="Also run `ottla console` for the cluster.")
@click.option(
    "--console-listen", default="127.0.0.1:8080", show_default=True, metavar="HOST:PORT", help="The loopback address of that console."
)
@click.option("--detach", is_flag=True, help="Return when all are ready; they keep running.")
@json_option
def up(
    brokers: int | None,
    directory: Path,
    per_core: bool,
    config_file: Path | None,
    zookeeper: str | None,
    base_port: int | None,
    first_id: int | None,
    host: str,
    racks: int | None,
    settings: tuple[str, ...],
    metrics: str | None,
    command_config: Path | None,
    has_console: bool,
    console_listen: str,
    detach: bool,
    as_json: bool,
) -> None:
    """Start BROKERS brokers and print their addresses once all are ready.

    Without BROKERS: as many as the directory had last, or 3. A cluster that is started again has the ports that it had.
    """
    from ottla.config.errors import ConfigError
    from ottla.supervisor import state_file
    from ottla.supervisor.layout import Layout, choose_ports, ids_in
    from ottla.supervisor.layout_check import check_layout
    from ottla.supervisor.template import Template

    if brokers is not None and per_core:
        raise click.UsageError("BROKERS and --per-core both say how many brokers there are; omit one of them.")
    directory = directory.absolute()
    command_config = None if command_config is None else command_config.absolute()
    config_file = None if config_file is None else config_file.absolute()
    settings = (*_handed_over(os.environ), *settings)
    security = client_security(command_config)
    written = state_file.read(directory)
    before = list(written.brokers) or ids_in(directory)
    first, count = _ids(first_id, brokers, per_core, before)
    if base_port is not None and base_port + count > 65536:
        raise click.UsageError(f"--base-port {base_port} leaves no room for {counted(count, 'broker')} below 65536.")
    try:
        template = Template.load(config_file, os.environ)
        ports = choose_ports(range(first, first + count), base_port, written.ports())
        layout = Layout(directory, ports, racks, zookeeper, settings, first, host, command_config, template, metrics)
        found = check_layout(layout)
    except ConfigError as error:
        raise SystemExit(f"ottla: {error}") from None
    if racks is not None and layout.sets_racks:
        raise click.UsageError("--racks and --set broker.rack=... both define the racks; omit one of them.")
    for remark in (*found, *_left_out(directory, before, range(first, first + count))):
        say(remark)
    _make(directory)
    console = console_listen if has_console else None
    if detach:
        _detach(layout, console, as_json=as_json)
    else:
        _supervise(layout, security, console, as_json=as_json)


def _handed_over(environment: MutableMapping[str, str]) -> Iterator[str]:
    """The settings of the `up --detach` that has started this process. The variable is taken away, so that no broker inherits it."""
    import json

    yield from json.loads(environment.pop(_SETTINGS, "[]"))


def _ids(first_id: int | None, brokers: int | None, per_core: bool, before: list[int]) -> tuple[int, int]:
    """The id of the first broker, and the number of brokers. `before` has the ids that the directory had last.

    The ids of a directory stay: with other ones its brokers would be dead members of their cluster, and all their partitions offline.
    """
    first = min(before, default=0) if first_id is None else first_id
    if brokers is None and before and first == min(before):
        return first, len(before)
    cores = len(os.sched_getaffinity(0)) if per_core else 3
    return first, brokers or cores


def _left_out(directory: Path, before: Iterable[int], ids: range) -> Iterator[str]:
    """The remark about brokers that the directory had, and that are not started. Replicas of theirs may be the only ones."""
    left = [broker_id for broker_id in before if broker_id not in ids]
    if left:
        named = ", ".join(map(str, left))
        yield (
            f"broker {named} of {directory} is not started: partitions that are there alone are offline; `ottla cluster grow` starts more "
            "brokers, and `ottla cluster shrink` moves their replicas before it removes them"
        )


def _make(directory: Path) -> None:
    try:
        make_directory(str(directory))
        usable = os.access(directory, os.W_OK | os.X_OK)
        reason = "the directory is not writable"
    except OSError as error:
        usable, reason = False, str(error.strerror)
    if not usable:
        raise SystemExit(f"ottla: {directory} cannot be used for a cluster: {reason}; set another --dir")


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
    import json

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
                *(("--json",) if as_json else ()),
            ],
            env={**os.environ, _SETTINGS: json.dumps(layout.settings)},
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
            console_line = "" if listen is None or as_json else supervisor.stdout.readline()
        except KeyboardInterrupt:
            # The terminal's signal does not reach the supervisor in its own session.
            supervisor.terminate()
            supervisor.wait()
            raise
    if line:
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
    """The arguments of an `up` with this layout, but for its settings; ports that the directory has kept are passed as 0.

    All users see the arguments of a process, and a setting may be a password.
    """
    first = layout.ports[0]
    follow_each_other = layout.ports == tuple(range(first, first + len(layout.ports)))
    found = [str(len(layout.ports)), "--dir", str(layout.directory), "--base-port", str(first if follow_each_other else 0)]
    found += ["--first-id", str(layout.first_id), "--host", layout.host]
    if layout.racks is not None:
        found += ["--racks", str(layout.racks)]
    if layout.template.file is not None:
        found += ["--config", str(layout.template.file)]
    if layout.metrics is not None:
        found += ["--metrics", layout.metrics]
    if layout.zookeeper is not None:
        found += ["--zookeeper", layout.zookeeper]
    if layout.command_config is not None:
        found += ["--command-config", str(layout.command_config)]
    return found
