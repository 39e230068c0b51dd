"""Implements `ottla console`: a web page about a cluster, in a process of its own, on this host's loopback address."""

from __future__ import annotations

import ipaddress

import click

from broker.cli.options import Amount
from broker.cli.output import say
from broker.client.errors import ClientError

_DEFAULT_LISTEN = "127.0.0.1:8080"


@click.command()
@click.option(
    "-b",
    "--bootstrap-server",
    "bootstrap",
    envvar="OTTLA_BOOTSTRAP_SERVER",
    default="127.0.0.1:9092",
    show_default=True,
    show_envvar=True,
    metavar="HOST:PORT,...",
    help="Bootstrap servers.",
)
@click.option(
    "--listen", default=_DEFAULT_LISTEN, show_default=True, metavar="HOST:PORT", help="A loopback address; port 0 takes a free one."
)
@click.option(
    "--timeout",
    "timeout_seconds",
    type=Amount(0.1, 3600.0),
    default=5.0,
    show_default=True,
    metavar="SECONDS",
    help="Time of a request to the cluster.",
)
def console(bootstrap: str, listen: str, timeout_seconds: float) -> None:
    """Show a cluster in the browser: brokers, topics, records, groups, findings. Changes nothing.

    The console has no login, so it listens on loopback addresses only.
    """
    from broker.client.cluster import Cluster, parse_bootstrap

    host, port = _loopback(listen)
    try:
        parse_bootstrap(bootstrap)
    except ClientError as error:
        raise click.UsageError(f"{error}.") from None
    try:
        import uvicorn

        from broker.cli.console.application import application
    except ImportError as error:
        say(f"ottla: the console needs {error.name}: pip install 'ottla[console]'")
        raise SystemExit(1) from None

    _serve(uvicorn.Config(application(lambda: Cluster(bootstrap, timeout_seconds=timeout_seconds)), log_level="warning"), host, port)


def _serve(config: object, host: str, port: int) -> None:
    """Listen first, so that the printed address is open and an address that is taken is one line."""
    import socket

    import uvicorn

    assert isinstance(config, uvicorn.Config)
    try:
        listening = socket.create_server((host, port), family=socket.AF_INET6 if ":" in host else socket.AF_INET)
    except OSError as error:
        say(f"ottla: {host}:{port} cannot be bound: {error.strerror}; set another --listen")
        raise SystemExit(1) from None
    with listening:
        shown = f"[{host}]" if ":" in host else host
        print(f"ottla console is ready: http://{shown}:{listening.getsockname()[1]}/", flush=True)
        uvicorn.Server(config).run(sockets=[listening])


def _loopback(text: str) -> tuple[str, int]:
    """The host and port to listen on. Raises UsageError."""
    host, colon, port = text.rpartition(":")
    if not colon or not port.isdecimal() or int(port) > 65535:
        raise click.UsageError(f"--listen {text!r} is not HOST:PORT.")
    host = "127.0.0.1" if host == "localhost" else host.strip("[]")
    try:
        is_loopback = ipaddress.ip_address(host).is_loopback
    except ValueError:
        is_loopback = False
    if not is_loopback:
        raise click.UsageError(f"--listen {text}: the console has no login, so it listens on 127.0.0.1 or [::1] only; use an SSH tunnel.")
    return host, int(port)
