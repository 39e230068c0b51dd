"""Implements `ottla serve`: runs one broker until it is stopped.

Prints one line with its addresses to standard output once it listens; the log goes to standard error. An invalid
configuration causes one line and exit status 1, before any data is touched.
"""

from __future__ import annotations

import asyncio
import logging
import os
import platform
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import click

from broker.logs import set_up_logging
from broker.process import ending_signals, fill_standard_streams, keep_freed_memory, raise_file_limit, say
from config.broker import BrokerConfig
from config.errors import ConfigError
from config.loader import load_properties, remarks

if TYPE_CHECKING:
    from broker.configuration.secure_start import SecureStart

logger = logging.getLogger(__name__)


@click.command()
@click.argument("properties", required=False, type=click.Path(path_type=Path))
@click.option("--set", "overrides", multiple=True, metavar="KEY=VALUE", help="A configuration key; overrides the file and the environment.")
@click.option(
    "--secure",
    type=click.Path(file_okay=False, path_type=Path),
    metavar="FOLDER",
    help="Serve only users who authenticate over TLS. Makes a certificate, users, ACLs and their clients' settings in FOLDER.",
)
def serve(properties: Path | None, overrides: tuple[str, ...], secure: Path | None) -> None:
    """Run a broker.

    PROPERTIES is a server.properties file as for Apache Kafka. Environment variables like KAFKA_NUM_PARTITIONS are read
    as by the official container image. Without any of them: 127.0.0.1:9092, data under ./data, no ZooKeeper.
    """
    fill_standard_streams()
    set_up_logging()
    start: SecureStart | None = None
    try:
        if secure is not None:
            from broker.configuration.secure_start import SecureStart

            start = SecureStart(secure)
            overrides = (*start.prepare(), *overrides)
        config = BrokerConfig(load_properties(properties, os.environ, overrides))
    except ConfigError as error:
        raise SystemExit(f"ottla: {error}") from None
    raise_file_limit()
    keep_freed_memory()
    for remark in remarks(config):
        logger.warning(remark)
    sys.exit(run(config, start))


def run(config: BrokerConfig, secure: SecureStart | None = None) -> int:
    """Run the event loop until the broker has stopped; returns the exit status."""
    import uvloop  # not needed to report an invalid configuration

    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        return runner.run(_serve(config, secure))


async def _serve(config: BrokerConfig, secure: SecureStart | None) -> int:
    from broker.server import Broker, CannotStart
    from protocol.compiled import describe

    broker = Broker(config)
    stop = asyncio.Event()
    hurry = asyncio.Event()

    def on_signal() -> None:
        if stop.is_set():
            hurry.set()
        stop.set()

    loop = asyncio.get_running_loop()
    for number in ending_signals():
        loop.add_signal_handler(number, on_signal)
    broker.on_fatal = stop.set
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
        return 0
    except CannotStart as reason:
        print(f"ottla: {reason}", file=sys.stderr)
        return 1
    logger.info("Python %s, hot path %s", platform.python_version(), describe())
    advice = ""
    if secure is not None:
        administration = broker.services.administration
        try:
            await secure.admit(administration.config_admin, administration.acls)
            advice = secure.write_client_files(addresses[0].rpartition("/")[2])
        except ConfigError as reason:
            print(f"ottla: {reason}", file=sys.stderr)
            await broker.stop()
            return 1
    say(f"ottla is ready: {', '.join(addresses)}")
    if advice:
        say(advice)
    await stop.wait()
    await broker.stop(hurry)
    return 1 if broker.failed else 0
