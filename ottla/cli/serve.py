"""Implements `ottla serve`: runs one broker until it is stopped.

Prints one line with its addresses to standard output once it listens; the log goes to standard error, or to the file of
`ottla.log.file`. An invalid configuration causes one line and exit status 1, before any data is touched. A service manager
is notified (`ottla.broker.service_manager`). With `--ephemeral` the broker is one for tests (`ottla.ephemeral`).
"""

from __future__ import annotations

import asyncio
import json
import logging
import os
import signal
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import click

from ottla.broker.logs.setup import apply_configuration, apply_environment, one_line, set_up_logging
from ottla.broker.process import ending_signals, fill_standard_streams, keep_freed_memory, raise_file_limit, say
from ottla.config.broker import BrokerConfig
from ottla.config.errors import ConfigError
from ottla.config.loader import check_known, load_properties, parse_assignment, remarks

if TYPE_CHECKING:
    from ottla.broker.configuration.secure_start import SecureStart
    from ottla.broker.logs.sink import LogSink
    from ottla.broker.server import Broker

logger = logging.getLogger(__name__)


@click.command()
@click.argument("properties", required=False, type=click.Path(readable=False, path_type=Path))  # the loader says what cannot be read
@click.option("--set", "overrides", multiple=True, metavar="KEY=VALUE", help="A configuration key; overrides the file and the environment.")
@click.option(
    "--secure",
    type=click.Path(file_okay=False, path_type=Path),
    metavar="FOLDER",
    help="Serve only users who authenticate over TLS. Makes a certificate, users, ACLs and their clients' settings in FOLDER.",
)
@click.option(
    "--ephemeral", is_flag=True, help="For tests: take a free port, remove the data at the end, and end with the process that started it."
)
@click.option("--announce", "announced", multiple=True, metavar="LINE", help="Also print this line when the broker is ready.")
@click.option("--json", "as_json", is_flag=True, help="Print addresses, process id and ids in one line of JSON.")
def serve(
    properties: Path | None, overrides: tuple[str, ...], secure: Path | None, ephemeral: bool, announced: tuple[str, ...], as_json: bool
) -> None:
    """Run a broker.

    PROPERTIES is a server.properties file as for Apache Kafka. Environment variables like KAFKA_NUM_PARTITIONS are read
    as by the official container image. Without any of them: 127.0.0.1:9092, data under ./data, no ZooKeeper.
    """
    fill_standard_streams()
    set_up_logging()
    start: SecureStart | None = None
    test_broker = None
    try:
        if secure is not None:
            from ottla.broker.configuration.secure_start import SecureStart

            start = SecureStart(secure)
            overrides = (*start.prepare(load_properties(properties, os.environ, overrides).get("listeners")), *overrides)
        given = load_properties(properties, os.environ, overrides)
        if ephemeral:
            from ottla.ephemeral.settings import Ephemeral

            check_known(name for name, _ in map(parse_assignment, overrides))
            test_broker = Ephemeral(given)
        config = BrokerConfig(given if test_broker is None else test_broker.properties)
        sink = apply_configuration(config)
    except ConfigError as error:
        if test_broker is not None:
            test_broker.close()
        raise SystemExit(f"ottla: {one_line(str(error))}") from None
    apply_environment(os.environ)
    raise_file_limit()
    keep_freed_memory()
    for remark in remarks(config):
        logger.warning(remark)
    try:
        status = run(config, sink, start, ephemeral=ephemeral, announced=announced, as_json=as_json)
    finally:
        if test_broker is not None:
            test_broker.close()
    sys.exit(status)


def run(
    config: BrokerConfig,
    sink: LogSink | None = None,
    secure: SecureStart | None = None,
    *,
    ephemeral: bool = False,
    announced: Sequence[str] = (),
    as_json: bool = False,
) -> int:
    """Run the event loop until the broker has stopped; returns the exit status."""
    import uvloop  # not needed to report an invalid configuration

    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        return runner.run(_serve(config, sink, secure, ephemeral, announced, as_json))


async def _serve(
    config: BrokerConfig, sink: LogSink | None, secure: SecureStart | None, ephemeral: bool, announced: Sequence[str], as_json: bool
) -> int:
    from ottla.broker.server import Broker, CannotStart
    from ottla.broker.service_manager import ServiceManager
    from ottla.protocol.compiled import describe

    stop = asyncio.Event()
    forced = asyncio.Event()
    test_bench = None
    if ephemeral:
        from ottla.ephemeral.bench import Bench

        test_bench = Bench(stop, forced)
    broker = Broker(config, None if test_bench is None else test_bench.environment)
    manager = ServiceManager(os.environ, lambda: broker.status)
    _listen_to_signals(stop, forced, sink)
    broker.on_fatal = stop.set
    manager.on_starting()
    starting = asyncio.ensure_future(broker.start())
    stopped = asyncio.ensure_future(stop.wait())
    await asyncio.wait((starting, stopped), return_when=asyncio.FIRST_COMPLETED)
    stopped.cancel()
    if not starting.done():
        # The start may wait for a ZooKeeper, or for a session to end, and for long.
        logger.info("stopped before it was ready")
        starting.cancel()
    try:
        addresses = await starting
    except asyncio.CancelledError:
        return 1 if broker.failed else 0
    except CannotStart as reason:
        if sink is not None and not sink.is_plain:
            logger.critical("the broker does not start: %s", reason)
        print(f"ottla: {one_line(str(reason))}", file=sys.stderr)
        return 1
    if sink is not None:
        sink.identify(broker.services.broker_id, broker.services.cluster_id)
    logger.info("Python %s, hot path %s", sys.version.split()[0], describe())
    advice = ""
    if secure is not None:
        try:
            advice = await _admit(secure, broker, addresses)
        except ConfigError as reason:
            print(f"ottla: {reason}", file=sys.stderr)
            await broker.stop()
            return 1
    manager.on_ready()
    if test_bench is not None:
        test_bench.on_ready(addresses, broker)
    say(json.dumps(_described(broker, addresses)) if as_json else f"ottla is ready: {', '.join(addresses)}")
    if advice and not as_json:
        say(advice)
    for line in announced:
        say(line)
    await stop.wait()
    manager.on_stopping()
    await broker.stop(forced)
    manager.close()
    if test_bench is not None:
        test_bench.close()
    return 1 if broker.failed else 0


async def _admit(secure: SecureStart, broker: Broker, addresses: list[str]) -> str:
    """Makes the users and ACLs of a secure start, and the settings of their clients. Returns how to use them. Raises ConfigError."""
    administration = broker.services.administration
    await secure.admit(administration.config_admin, administration.acls)
    return secure.write_client_files(addresses[0].rpartition("/")[2])


def _listen_to_signals(stop: asyncio.Event, forced: asyncio.Event, sink: LogSink | None) -> None:
    def on_signal() -> None:
        if stop.is_set():
            forced.set()
        stop.set()

    loop = asyncio.get_running_loop()
    for number in ending_signals():
        loop.add_signal_handler(number, on_signal)
    loop.add_signal_handler(signal.SIGUSR1, (lambda: None) if sink is None else sink.reopen)  # unhandled, it would end the process


def _described(broker: Broker, addresses: list[str]) -> dict[str, object]:
    """The line of `--json`."""
    return {
        "bootstrap_servers": ",".join(address.partition("://")[2] for address in addresses),
        "listeners": addresses,
        "pid": os.getpid(),
        "broker_id": broker.services.broker_id,
        "cluster_id": broker.services.cluster_id,
        "metrics": None if broker.metrics is None else f"http://{broker.metrics.address}/metrics",
    }
