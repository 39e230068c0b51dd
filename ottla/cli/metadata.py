"""Implements `ottla metadata`: moves a stopped cluster's metadata from the metadata file to a ZooKeeper, and back."""

from __future__ import annotations

import os
import sys
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from ottla.cli.options import json_option, reported_errors
from ottla.cli.output import for_stream, print_json, progress_bar, say

if TYPE_CHECKING:
    from ottla.config.broker import BrokerConfig
    from ottla.controller.store.metadata_store import MetadataStore
    from ottla.controller.transfer.transfer import Plan, Side

_IN_FLIGHT = 500
"""Requests to ZooKeeper without an answer: zookeeper.max.in.flight.requests of a broker is for its own small share."""


def _transfer_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """Gives a command the options of both directions."""
    for option in (
        click.option(
            "--file",
            type=click.Path(dir_okay=False, path_type=Path),
            required=True,
            metavar="FILE",
            help="The metadata file: metadata.db of `ottla cluster`, ottla-metadata.sqlite3 in a log directory.",
        ),
        click.option("--zookeeper", metavar="HOST:PORT[/PATH]", help="As in zookeeper.connect, which is the default."),
        click.option(
            "--config",
            "properties",
            type=click.Path(path_type=Path),
            metavar="PROPERTIES",
            help="The server.properties that the brokers use with ZooKeeper: connection, TLS, ottla.zookeeper.auth, zookeeper.set.acl.",
        ),
        click.option("--set", "overrides", multiple=True, metavar="KEY=VALUE", help="A configuration key; overrides the file."),
        click.option("--dry-run", is_flag=True, help="Only show what would be written."),
        json_option,
    ):
        command = option(command)
    return command


@click.group(context_settings={"help_option_names": ["-h", "--help"]})
def metadata() -> None:
    """Move the metadata of a stopped cluster between the metadata file and a ZooKeeper."""


@metadata.command("export")
@_transfer_options
def export_metadata(file: Path, **options: Any) -> None:
    """Copy the metadata file to an empty path of ZooKeeper.

    All brokers have to be stopped. The same command completes an interrupted copy.
    """
    _run(file, to_zookeeper=True, **options)


@metadata.command("import")
@_transfer_options
def import_metadata(file: Path, **options: Any) -> None:
    """Copy the metadata in ZooKeeper to a new metadata file.

    All brokers have to be stopped. The same command completes an interrupted copy.
    """
    _run(file, to_zookeeper=False, **options)


def _run(
    file: Path,
    *,
    to_zookeeper: bool,
    zookeeper: str | None,
    properties: Path | None,
    overrides: tuple[str, ...],
    dry_run: bool,
    as_json: bool,
) -> None:
    import asyncio

    from ottla.config.errors import ConfigError
    from ottla.controller.errors import StoreError
    from ottla.controller.transfer.transfer import TransferRefused
    from ottla.controller.znodes.znode_json import MalformedZNode

    try:
        config = _config(zookeeper, properties, overrides)
        _check_file(file, is_source=to_zookeeper)
        plan = asyncio.run(_transfer(config, file.absolute(), to_zookeeper=to_zookeeper, dry_run=dry_run))
    except (ConfigError, TransferRefused, MalformedZNode) as error:
        say(f"ottla: {error}")
        raise SystemExit(1) from None
    except OSError as error:
        say(f"ottla: {error.filename or file}: {error.strerror or error}")
        raise SystemExit(1) from None
    except StoreError as error:
        say(f"ottla: {error}; nothing is lost: remove the cause, and repeat the command")
        raise SystemExit(1) from None
    with reported_errors():
        if as_json:
            print_json(_plan_json(plan, dry_run=dry_run))
        else:
            _print_plan(plan, dry_run=dry_run)
    if not dry_run and to_zookeeper:
        say(f"Start the brokers with zookeeper.connect; put {file} away, which no longer follows the cluster.")
    elif not dry_run:
        say(f"Start the brokers with ottla.metadata.file={file}, without zookeeper.connect; ZooKeeper no longer follows the cluster.")


def _check_file(file: Path, *, is_source: bool) -> None:
    """A source must exist, a target needs its directory. Raises TransferRefused."""
    from ottla.controller.transfer.transfer import TransferRefused

    if is_source and not file.is_file():
        raise TransferRefused(f"there is no metadata file {file}")
    if not file.parent.is_dir():
        raise TransferRefused(f"there is no directory {file.parent}; make it")


def _config(zookeeper: str | None, properties: Path | None, overrides: tuple[str, ...]) -> BrokerConfig:
    """The configuration of a broker with this ZooKeeper. Raises ConfigError, UsageError."""
    from ottla.config.broker import BrokerConfig
    from ottla.config.loader import load_properties

    static = load_properties(properties, os.environ, overrides)
    if zookeeper is not None:
        static["zookeeper.connect"] = zookeeper
    if "zookeeper.connect" not in static:
        raise click.UsageError("--zookeeper is missing, and --config has no zookeeper.connect.")
    return BrokerConfig({**static, "zookeeper.max.in.flight.requests": str(_IN_FLIGHT)})


async def _transfer(config: BrokerConfig, file: Path, *, to_zookeeper: bool, dry_run: bool) -> Plan:
    """Raises StoreError, TransferRefused, MalformedZNode."""
    from ottla.controller.transfer.transfer import check_source, plan, transfer

    with progress_bar("metadata", None, unit="nodes") as advance:

        def on_progress(_: str, done: int, total: int | None) -> None:
            advance(done, total)

        first, second = (_file, _zookeeper) if to_zookeeper else (_zookeeper, _file)
        async with first(config, file, is_target=False, dry_run=dry_run) as source:
            # A source that is refused leaves no trace of a target.
            await check_source(source)
            async with second(config, file, is_target=True, dry_run=dry_run) as target:
                return await (plan if dry_run else transfer)(source, target, on_progress)


@asynccontextmanager
async def _opened(store: MetadataStore, name: str, *, sets_acls: bool = False) -> AsyncIterator[Side]:
    from ottla.controller.transfer.transfer import Side

    try:
        await store.open_session()
        yield Side(store, name, sets_acls)
    finally:
        await store.close()


def _file(_: BrokerConfig, file: Path, *, is_target: bool, dry_run: bool) -> AbstractAsyncContextManager[Side]:
    """The metadata file. For a dry run a missing target is an empty store."""
    from ottla.broker.loop.clock import SystemClock
    from ottla.controller.store.embedded_store import EmbeddedStore
    from ottla.controller.store.memory_store import MemoryEnsemble

    missing = is_target and dry_run and not file.exists()
    store = MemoryEnsemble(SystemClock()).store() if missing else EmbeddedStore(str(file), SystemClock())
    return _opened(store, f"the file {file}")


@asynccontextmanager
async def _zookeeper(config: BrokerConfig, _: Path, *, is_target: bool, dry_run: bool) -> AsyncIterator[Side]:
    """The ZooKeeper of the configuration. For a source or a dry run a missing path is an empty store, and is not made."""
    from ottla.broker.loop.clock import SystemClock
    from ottla.broker.metadata_store import open_metadata_store
    from ottla.config.broker import BrokerConfig
    from ottla.config.keys.zookeeper import ZOOKEEPER_CONNECT, ZOOKEEPER_SET_ACL
    from ottla.config.zookeeper_connect import parse_zookeeper_connect
    from ottla.controller.store.memory_store import MemoryEnsemble

    connect = config[ZOOKEEPER_CONNECT] or ""
    hosts, path = parse_zookeeper_connect(connect)
    clock = SystemClock()
    store = open_metadata_store(config, clock, ())
    if path and (dry_run or not is_target):
        root = BrokerConfig({**config.static, ZOOKEEPER_CONNECT.name: hosts})
        async with _opened(open_metadata_store(root, clock, ()), connect) as side:
            if await side.store.exists(path) is None:
                store = MemoryEnsemble(clock).store()
    async with _opened(store, f"ZooKeeper {connect}", sets_acls=config[ZOOKEEPER_SET_ACL]) as side:
        yield side


def _summary(plan: Plan) -> dict[str, int]:
    wanted = plan.wanted
    return {
        "nodes": len(plan.contents.nodes),
        "created": len(wanted.creates),
        "changed": len(wanted.sets),
        "deleted": len(wanted.deletes),
        "counters": len(wanted.raises),
        "left_out_ephemeral": len(plan.contents.ephemeral),
        "left_out_notifications": len(plan.contents.sequential),
    }


def _plan_json(plan: Plan, *, dry_run: bool) -> dict[str, object]:
    wanted = plan.wanted
    return {
        "cluster_id": plan.cluster_id,
        "dry_run": dry_run,
        "resumed": plan.is_resumed,
        "was_complete": plan.is_complete,
        **_summary(plan),
        "left_out_foreign": plan.contents.foreign,
        "create": [each.path for each in wanted.creates],
        "change": [each.path for each in wanted.sets],
        "delete": [each.path for each in wanted.deletes],
        "raise": [{"path": each.path, "from": each.now, "to": each.wanted} for each in wanted.raises],
    }


def _print_plan(plan: Plan, *, dry_run: bool) -> None:
    wanted = plan.wanted
    if dry_run:
        for sign, paths in (("+", wanted.creates), ("~", wanted.sets), ("-", wanted.deletes)):
            for each in paths:
                print(for_stream(f"{sign} {each.path}", sys.stdout))
        for counter in wanted.raises:
            print(f"^ {counter.path} {counter.now} -> {counter.wanted}")
    counts = _summary(plan)
    state = "is complete already" if plan.is_complete else "would be copied" if dry_run else "is copied"
    print(f"cluster {plan.cluster_id} {state}{', by going on with an unfinished transfer' if plan.is_resumed else ''}")
    print(", ".join(f"{name.replace('_', ' ')} {count}" for name, count in counts.items()))
    if plan.contents.foreign:
        print(for_stream(f"left out, not Kafka's: {', '.join(plan.contents.foreign)}", sys.stdout))
