"""Implements `ottla console`: a web page about one cluster or several, in a process of its own.

A loopback address needs no TLS and no login. Any other address needs TLS, and either passwords or a proxy that names the user.
"""

from __future__ import annotations

import ipaddress
import os
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import click

from ottla.cli.options import cluster_command, connecting_by_profile, is_number
from ottla.cli.output import say
from ottla.client.errors import ClientError

if TYPE_CHECKING:
    from starlette.applications import Starlette

    from ottla.client.cluster import Cluster
    from ottla.console.audit import Audit
    from ottla.console.clusters import Served
    from ottla.console.decoding import Decoder
    from ottla.console.guard import Rules

DEFAULT_LISTEN = "127.0.0.1:8080"
_LOOPBACK_NAMES = frozenset({"localhost", "127.0.0.1", "[::1]"})
_COLLECTED_AFTER = 2_000_000
"""Objects that are allocated between two runs of the garbage collector."""
_LAST_SECONDS = 2
"""Time for live views to end when the console stops, seconds."""

_file = click.Path(path_type=Path, dir_okay=False)


class Listener(NamedTuple):
    """The address to listen on, and the files of the TLS certificate and its key."""

    host: str
    port: int
    certificate: Path | None
    key: Path | None

    @property
    def is_loopback(self) -> bool:
        """Whether only this host reaches the address."""
        return ipaddress.ip_address(self.host).is_loopback

    @property
    def shown_host(self) -> str:
        """The host as a part of a URL, and of the Host header."""
        return f"[{self.host}]" if ":" in self.host else self.host


class Users(NamedTuple):
    """The file of passwords; or the header in which a proxy names the user, and the file of its secret. All None without a login."""

    passwords: Path | None
    header: str | None
    secret: Path | None

    @property
    def are_known(self) -> bool:
        """Whether each request has a user."""
        return self.passwords is not None or self.header is not None


def _hash_password(ctx: click.Context, _: click.Parameter, name: str | None) -> None:
    """Prints the line of a user, and ends."""
    if name is None or ctx.resilient_parsing:
        return
    from ottla.console.login.passwords import check_name, hashed

    try:
        check_name(name)
    except ClientError as error:
        raise click.UsageError(f"{error}.") from None
    if sys.stdin.isatty():
        password = click.prompt(f"Password of {name}", hide_input=True, confirmation_prompt=True, err=True)
    else:
        password = sys.stdin.readline().rstrip("\r\n")
    if not password:
        raise click.UsageError("The password is empty.")
    click.echo(f"{name}:{hashed(password)}")
    ctx.exit()


@click.command()
@click.option("--listen", default=DEFAULT_LISTEN, show_default=True, metavar="HOST:PORT", help="An address; port 0 takes a free one.")
@click.option("--read-only", "is_read_only", is_flag=True, help="Refuse everything that changes the cluster.")
@click.option("--passwords", type=_file, metavar="FILE", help="The users who may log in: lines that --hash-password prints.")
@click.option(
    "--hash-password",
    metavar="NAME",
    is_eager=True,
    expose_value=False,
    callback=_hash_password,
    help="Read a password, print the line of this user for --passwords, and end.",
)
@click.option("--user-header", metavar="NAME", help="The header in which a proxy names the user, X-Forwarded-User for example.")
@click.option("--proxy-secret", type=_file, metavar="FILE", help="The secret that the proxy sends as X-Ottla-Proxy-Secret.")
@click.option("--tls-certificate", "certificate", type=_file, metavar="FILE", help="The certificate with its chain, as PEM.")
@click.option("--tls-key", "key", type=_file, metavar="FILE", help="Its private key, as PEM, without a password.")
@click.option("--name", "names", multiple=True, metavar="HOST", help="A host name at which browsers reach the console; may be repeated.")
@click.option("--audit-log", "audit_log", type=_file, metavar="FILE", help="Append the audit lines there; by default standard error.")
@click.option("--schema-registry", "registry", metavar="URL", help="Decode records by the schemas of this registry.")
@click.option(
    "--schema-registry-login",
    "registry_login",
    type=_file,
    metavar="FILE",
    help="A file with USER:PASSWORD for the registry, which OTTLA_SCHEMA_REGISTRY_LOGIN may have instead.",
)
@click.option(
    "--cluster", "names_of_clusters", multiple=True, metavar="NAME", help="Show the cluster of this profile, too; may be repeated."
)
@click.option("--all-profiles", is_flag=True, help="Show the clusters of all profiles, too.")
@cluster_command
def console(
    cluster: Cluster,
    listen: str,
    is_read_only: bool,
    passwords: Path | None,
    user_header: str | None,
    proxy_secret: Path | None,
    certificate: Path | None,
    key: Path | None,
    names: tuple[str, ...],
    audit_log: Path | None,
    registry: str | None,
    registry_login: Path | None,
    names_of_clusters: tuple[str, ...],
    all_profiles: bool,
) -> None:
    """Show a cluster in the browser, and change it: topics, records, groups, ACLs, users, quotas.

    Without --passwords there is no login, and the console listens on loopback addresses only. A proxy may log users in
    instead. The audit log gets a line for every change.
    """
    listener = _listener(listen, certificate, key)
    users = _users(passwords, user_header, proxy_secret)
    _check_listener(listener, users, names)
    _check_registry(registry)
    try:
        import uvicorn

        from ottla.console.application import application
        from ottla.console.clusters import Clusters
    except ImportError as error:
        raise ClientError(f"the console needs {error.name}: pip install 'ottla[console]'") from None
    del uvicorn  # imported to report its absence here
    rules = _rules(listener, users, names, audit_log, is_read_only=is_read_only)
    served = _served(cluster, registry, registry_login, names_of_clusters, all_profiles=all_profiles)
    _serve(application(Clusters(served), rules), listener)


def _served(
    cluster: Cluster, registry: str | None, registry_login: Path | None, names: tuple[str, ...], *, all_profiles: bool
) -> list[Served]:
    """The clusters of the console: the one of the options first, unless only other profiles are named.

    Raises ClientError, UsageError.
    """
    from ottla.cli.profiles import profile_names, read_profile
    from ottla.console.clusters import Served

    context = click.get_current_context()
    profile, seconds = context.params["profile"], context.params["timeout_seconds"]
    wanted = [*names, *(profile_names() if all_profiles else [])]
    found: list[Served] = []
    if profile is not None or not wanted or context.get_parameter_source("bootstrap") is not click.core.ParameterSource.DEFAULT:
        own = {} if profile is None else read_profile(profile)
        file = registry_login or own.get("schema-registry-login")
        decoder = _decoder(registry or own.get("schema-registry"), None if file is None else Path(file), os.environ)
        found.append(Served(profile or context.params["bootstrap"], cluster.another, decoder))
    elif registry is not None or registry_login is not None:
        raise click.UsageError("The options of the schema registry are for the cluster of -b or --profile; other profiles have their own.")
    for name in dict.fromkeys(wanted):
        if name != profile:
            connecting, own = connecting_by_profile(name, seconds), read_profile(name)
            file = own.get("schema-registry-login")
            decoder = _decoder(own.get("schema-registry"), None if file is None else Path(file), {})
            found.append(Served(name, connecting.cluster().another, decoder))
    return found


def _decoder(registry: str | None, login_file: Path | None, environment: Mapping[str, str]) -> Decoder:
    """Shows records, with the schemas of a registry if there is one. Raises ClientError for a login that cannot be used."""
    from ottla.console.decoding import Decoder
    from ottla.schemas.schema_registry import open_registry

    return Decoder(open_registry(registry, login_file, environment, say))


def _listener(listen: str, certificate: Path | None, key: Path | None) -> Listener:
    """The address and TLS files that the options give. Raises UsageError."""
    host, colon, port = listen.rpartition(":")
    if not colon or not is_number(port) or int(port) > 65535:
        raise click.UsageError(f"--listen {listen!r} is not HOST:PORT.")
    host = "127.0.0.1" if host == "localhost" else host.strip("[]")
    try:
        ipaddress.ip_address(host)
    except ValueError:
        raise click.UsageError(f"--listen {listen!r} has no IP address; --name has the names for browsers.") from None
    if (certificate is None) is not (key is None):
        raise click.UsageError("--tls-certificate and --tls-key need each other.")
    return Listener(host, int(port), certificate, key)


def _users(passwords: Path | None, user_header: str | None, proxy_secret: Path | None) -> Users:
    """The options that decide which user a request has. Raises UsageError."""
    if (user_header is None) is not (proxy_secret is None):
        raise click.UsageError("--user-header and --proxy-secret need each other.")
    if passwords is not None and user_header is not None:
        raise click.UsageError("--passwords and --user-header exclude each other: either the console logs users in, or the proxy.")
    return Users(passwords, user_header, proxy_secret)


def _check_listener(listener: Listener, users: Users, names: tuple[str, ...]) -> None:
    """Raises UsageError for an address that others reach, if it is not protected."""
    if listener.is_loopback:
        return
    if not users.are_known or listener.certificate is None:
        raise click.UsageError(
            f"--listen {listener.host}: others reach this address, so it needs --passwords, --tls-certificate and --tls-key; "
            "or listen on 127.0.0.1 and use an SSH tunnel."
        )
    if ipaddress.ip_address(listener.host).is_unspecified and not names:
        raise click.UsageError(f"--listen {listener.host}: give the host names for browsers by --name.")


def _check_registry(registry: str | None) -> None:
    """Raises UsageError for an address that cannot be that of a schema registry."""
    from ottla.schemas.schema_registry import check_url

    try:
        if registry is not None:
            check_url(registry)
    except ClientError as error:
        raise click.UsageError(f"--schema-registry: {error}.") from None


def _rules(listener: Listener, users: Users, names: tuple[str, ...], audit_log: Path | None, *, is_read_only: bool) -> Rules:
    """The rules of the console. Raises ClientError for a file that cannot be used."""
    import time

    from ottla.console.guard import Rules
    from ottla.console.login.passwords import read_passwords
    from ottla.console.login.proxy_login import read_proxy_login
    from ottla.console.login.sessions import Sessions

    passwords = None if users.passwords is None else read_passwords(users.passwords)
    proxy = None if users.header is None or users.secret is None else read_proxy_login(users.header, users.secret)
    own = _LOOPBACK_NAMES if listener.is_loopback else frozenset[str]()
    return Rules(
        frozenset({*own, listener.shown_host, *(name.lower() for name in names)}),
        Sessions(passwords, time.monotonic, proxy),
        _audit(audit_log),
        is_read_only=is_read_only,
        is_secure=listener.certificate is not None,
    )


def _audit(file: Path | None) -> Audit:
    """The audit log in a file that only its owner reads, or on standard error. Raises ClientError."""
    import time

    from ottla.console.audit import Audit

    if file is None:
        return Audit(say, time.time, time.monotonic)
    try:
        descriptor = os.open(file, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
    except OSError as error:
        raise ClientError(f"the audit log {file} cannot be written: {error.strerror}") from None

    def write(line: str) -> None:
        try:
            os.write(descriptor, line.encode() + b"\n")
        except OSError as error:
            say(f"ottla: the audit log {file} cannot be written: {error.strerror}: {line}")

    return Audit(write, time.time, time.monotonic)


def _serve(app: Starlette, listener: Listener) -> None:
    """Listen first, so that the printed address is open and an address that is taken is one line. Raises ClientError."""
    import gc
    import socket

    import uvicorn

    from ottla.console.connections import MOST_CONNECTIONS, BoundedRequests
    from ottla.console.handshakes import HandshakingServer

    if listener.certificate is not None:
        _check_certificate(listener.certificate, listener.key)
    config = uvicorn.Config(
        app,
        http=BoundedRequests,
        ws="none",
        lifespan="on",
        log_level="error",  # with a warning for each malformed request any client could fill the disk
        access_log=False,
        server_header=False,
        proxy_headers=False,  # a client must not choose the address that limits its logins
        limit_concurrency=MOST_CONNECTIONS + 1,
        timeout_graceful_shutdown=_LAST_SECONDS,
        ssl_certfile=listener.certificate,
        ssl_keyfile=listener.key,
    )
    family = socket.AF_INET6 if ":" in listener.host else socket.AF_INET
    try:
        listening = socket.create_server((listener.host, listener.port), family=family)
    except OSError as error:
        reason = os.strerror(error.errno) if error.errno else str(error)  # its own text names the address once more
        raise ClientError(
            f"the console cannot use {listener.host}:{listener.port} ({reason}): name another address by --listen, "
            "for a cluster by --console-listen"
        ) from None
    # Metadata of 100,000 partitions is a million objects without cycles; the collector would scan them several times.
    gc.set_threshold(_COLLECTED_AFTER)
    with listening:
        scheme = "http" if listener.certificate is None else "https"
        print(f"ottla console is ready: {scheme}://{listener.shown_host}:{listening.getsockname()[1]}/", flush=True)
        HandshakingServer(config).run(sockets=[listening])


def _check_certificate(certificate: Path, key: Path | None) -> None:
    """Raises ClientError for a certificate or a key that cannot be used. Without this check OpenSSL would ask for a key's password."""
    import ssl

    try:
        ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER).load_cert_chain(certificate, key, password="")
    except (OSError, ValueError) as error:
        reason = getattr(error, "reason", None) or getattr(error, "strerror", None) or error
        raise ClientError(f"the TLS certificate {certificate} and its key {key} cannot be used: {reason}") from None
