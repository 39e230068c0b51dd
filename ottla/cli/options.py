"""Defines options and parsers that commands share, and their exit statuses: 0 success, 1 failure, 2 usage error.

Conventions of a command: tables by `print_table`, remarks and errors by `say`. `--json` prints one JSON document instead of a table. A
command that changes something ends with `report_outcomes`, which has a line, or with `--json` an object, for each thing that it changed.
"""

from __future__ import annotations

import errno
import functools
import math
import os
import signal
import sys
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import click

from ottla.cli.output import for_stream, print_json, say
from ottla.client.errors import ClientError

if TYPE_CHECKING:
    from ottla.client.cluster import Cluster
    from ottla.protocol.client_security import ClientSecurity
    from ottla.protocol.topic_partition import TopicPartition

DEFAULT_BOOTSTRAP = "127.0.0.1:9092"
_DEFAULT_SECONDS = 30.0
_HELP = {"help_option_names": ["-h", "--help"]}
_PARAMETERS = {"bootstrap-server": "bootstrap", "timeout": "timeout_seconds", "command-config": "command_config"}
"""The keys of a profile that are options of every command -> their parameters."""

_MOST_SECONDS = 1_000_000.0  # fits the requests when in milliseconds
_MOST_NUMBERS = 1_000_000
_WILDCARDS = "*?["
"""They are in no name of a topic."""
_MOST_DIGITS = 19  # of a number of 64 bits
_OF_A_DISK = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO)
"""Errors of writes to an output that is a file."""


class CommandGroup(click.Group):
    """A group of commands. Its help has the whole first sentence of each; click cuts sentences that do not fit."""

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """See click.Group."""
        commands = [(name, self.get_command(ctx, name)) for name in self.list_commands(ctx)]
        with formatter.section("Commands"):
            formatter.write_dl([(name, command.get_short_help_str(limit=1000)) for name, command in commands if command is not None])

    def resolve_command(self, ctx: click.Context, args: list[str]) -> tuple[str | None, click.Command | None, list[str]]:
        """See click.Group. The error for a name that is like none of the group's has all of them."""
        try:
            return super().resolve_command(ctx, args)
        except click.NoSuchCommand as error:
            if error.possibilities:
                raise
            raise click.UsageError(f"{error.message} There are {', '.join(self.list_commands(ctx))}.", ctx) from None


def command_group(function: Callable[[], None]) -> click.Group:
    """Makes a group of commands, named as the function."""
    return click.group(cls=CommandGroup, context_settings=_HELP)(function)


class Amount(click.FloatRange):
    """A range without the values nan and inf, which float() accepts."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """See click.ParamType."""
        found = super().convert(value, param, ctx)
        if not math.isfinite(found):
            self.fail(f"{found} is not a finite number.", param, ctx)
        return found


json_option = click.option("--json", "as_json", is_flag=True, help="Print JSON.")


profile_option = click.option(
    "--profile", envvar="OTTLA_PROFILE", show_envvar=True, metavar="NAME", help="The profile that has these options."
)

command_config_option = click.option(
    "--command-config",
    "command_config",
    envvar="OTTLA_COMMAND_CONFIG",
    type=click.Path(path_type=Path),
    show_envvar=True,
    metavar="FILE",
    help="Properties for TLS and SASL, in the words of Java's clients or of librdkafka's.",
)


class Connecting(NamedTuple):
    """The bootstrap servers, the time for retries and the security of a command's connections."""

    bootstrap: str
    timeout_seconds: float
    security: ClientSecurity

    def cluster(self) -> Cluster:
        """A new client of the cluster."""
        from ottla.client.cluster import Cluster

        return Cluster(self.bootstrap, timeout_seconds=self.timeout_seconds, security=self.security)


def connecting(bootstrap: str | None, timeout_seconds: float, command_config: Path | None, profile: str | None) -> Connecting | None:
    """The connections that the options of the running command ask for; None without bootstrap servers.

    The options are parameters of that command with these names. Raises UsageError; ends with status 1 when the profile cannot be used.
    """
    from ottla.client.cluster import parse_bootstrap

    with reported_errors():
        found = _of_profile(click.get_current_context(), profile)
    bootstrap = found.get("bootstrap", bootstrap)
    if bootstrap is None:
        return None
    try:
        parse_bootstrap(bootstrap)
    except ClientError as error:
        raise click.UsageError(f"{error}.") from None
    security = client_security(found.get("command_config", command_config))
    return Connecting(bootstrap, found.get("timeout_seconds", timeout_seconds), security)


def connecting_by_profile(name: str, timeout_seconds: float) -> Connecting:
    """The connections of a profile alone: no option and no environment variable of the command adds a credential to it.

    `timeout_seconds` is for a profile without a timeout. Raises ClientError, and UsageError for its command-config.
    """
    from ottla.cli.profiles import profiles_file, read_profile
    from ottla.client.cluster import parse_bootstrap

    profile = read_profile(name)
    bootstrap, command_config = profile.get("bootstrap-server"), profile.get("command-config")
    if bootstrap is None:
        raise ClientError(f"profile {name} in {profiles_file()} has no bootstrap-server")
    try:
        parse_bootstrap(bootstrap)
    except ClientError as error:
        raise ClientError(f"profile {name} in {profiles_file()}: {error}") from None
    security = client_security(None if command_config is None else Path(command_config))
    return Connecting(bootstrap, profile.get("timeout", timeout_seconds), security)


def cluster_command(command: Callable[..., Any]) -> Callable[..., Any]:
    """Gives a command the connection options, and a `cluster` as its first argument; prints its ClientErrors and ends
    with status 1."""

    @click.option(
        "-b",
        "--bootstrap-server",
        "--brokers",
        "bootstrap",
        envvar="OTTLA_BOOTSTRAP_SERVER",
        default=DEFAULT_BOOTSTRAP,
        show_default=True,
        show_envvar=True,
        metavar="HOST:PORT,...",
        help="Bootstrap servers.",
    )
    @profile_option
    @click.option(
        "--timeout",
        "timeout_seconds",
        type=Amount(0.1, _MOST_SECONDS),
        default=_DEFAULT_SECONDS,
        show_default=True,
        metavar="SECONDS",
        help="Time for retries.",
    )
    @command_config_option
    @functools.wraps(command)
    def connected(bootstrap: str, profile: str | None, timeout_seconds: float, command_config: Path | None, **options: Any) -> Any:
        found = connecting(bootstrap, timeout_seconds, command_config, profile)
        assert found is not None, "there is a default"
        with reported_errors(), found.cluster() as cluster:
            return command(cluster, **options)

    return connected


def _of_profile(ctx: click.Context, name: str | None) -> dict[str, Any]:
    """The parameters of the profile that the command line does not set. Raises ClientError."""
    from ottla.cli.profiles import read_profile

    if name is None:
        return {}
    profile = {_PARAMETERS[key]: value for key, value in read_profile(name).items() if key in _PARAMETERS}
    if "command_config" in profile:
        profile["command_config"] = Path(profile["command_config"])
    given = click.core.ParameterSource.COMMANDLINE
    return {parameter: value for parameter, value in profile.items() if ctx.get_parameter_source(parameter) is not given}


def client_security(command_config: Path | None) -> ClientSecurity:
    """The security of connections by the file of --command-config; plaintext without one. Raises UsageError."""
    from ottla.client_security import client_security as security_of
    from ottla.config.errors import ConfigError
    from ottla.protocol.client_security import PLAINTEXT

    if command_config is None:
        return PLAINTEXT
    try:
        return security_of(command_config)
    except ConfigError as error:
        raise click.UsageError(f"--command-config: {error}.") from None


@contextmanager
def reported_errors() -> Iterator[None]:
    """Prints expected errors and ends the process with status 1."""
    try:
        yield
        sys.stdout.flush()
    except ClientError as error:
        for line in str(error).splitlines():
            say(f"ottla: {line}")
        raise SystemExit(1) from None
    except BrokenPipeError:
        # The reader of the output has closed it.
        _drop_output()
        raise SystemExit(0) from None
    except OSError as error:
        if error.errno not in _OF_A_DISK:
            raise
        _drop_output()
        say(f"ottla: {error.filename or 'standard output'}: {error.strerror}")
        raise SystemExit(1) from None


@contextmanager
def ended_in_order() -> Iterator[None]:
    """In this block SIGTERM and SIGHUP end a command as Ctrl-C does, which has something to finish. `nohup` ignores SIGHUP, and that stays.

    It is a decorator, too. Signals are left alone in another thread than the first.
    """
    numbers = (signal.SIGTERM, signal.SIGHUP) if threading.current_thread() is threading.main_thread() else ()
    changed = [number for number in numbers if signal.getsignal(number) is signal.SIG_DFL]
    for number in changed:
        signal.signal(number, signal.default_int_handler)
    try:
        yield
    finally:
        for number in changed:
            signal.signal(number, signal.SIG_DFL)


def _drop_output() -> None:
    """The interpreter flushes standard output once more at the end, and must not fail again."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def report_outcomes(outcomes: Iterable[tuple[str, ClientError | None]], done: str | Mapping[str, str], *, as_json: bool = False) -> None:
    """Prints one line per item: the `done` text (one for all, or by name), or the error. Ends with status 1 when one
    failed.

    As JSON it is a list of objects with `name`, `result` and `error`, one of which is null.
    """
    failed = False
    printed: list[dict[str, str | None]] = []
    for name, error in outcomes:
        result = None if error else done if isinstance(done, str) else done[name]
        failed |= error is not None
        printed.append({"name": name, "result": result, "error": None if error is None else str(error)})
        if error is not None:
            say(f"ottla: {error}")
        elif not as_json:
            print(for_stream(f"{name}: {result}", sys.stdout))
    if as_json:
        print_json(printed)
    if failed:
        sys.stdout.flush()
        raise SystemExit(1)


def fail(lines: Iterable[str]) -> None:
    """Ends a command that has shown only a part of what it was asked for. Raises ClientError if there are lines."""
    text = "\n".join(lines)
    if text:
        raise ClientError(text)


def key_values(texts: Iterable[str], what: str) -> dict[str, str]:
    """`name=value` texts, of which the last one of a name counts. Raises UsageError."""
    return dict(pairs(texts, what))


def pairs(texts: Iterable[str], what: str) -> list[tuple[str, str]]:
    """`name=value` texts in their order; a name may repeat. Raises UsageError."""
    found = []
    for text in texts:
        name, equals, value = text.partition("=")
        if not equals or not name:
            raise click.UsageError(f"{what} {text!r} is not name=value.")
        found.append((name.strip(), value))
    return found


def amounts(texts: Iterable[str], what: str) -> dict[str, float]:
    """`name=number` texts. Raises UsageError."""
    found = {}
    for name, text in key_values(texts, what).items():
        try:
            found[name] = float(text)
        except ValueError:
            raise click.UsageError(f"{text!r} is not a number.") from None
        if not math.isfinite(found[name]):
            raise click.UsageError(f"{text!r} is not a finite number.")
    return found


def numbers(text: str) -> list[int]:
    """`0,2,5-7` as numbers. Raises UsageError."""
    found: list[int] = []
    for part in filter(None, text.split(",")):
        first, dash, last = part.strip().partition("-")
        if not is_number(first) or (dash and not is_number(last)):
            raise click.UsageError(f"{text!r} is not a list of numbers; write 0,2,5-7.")
        span = range(int(first), int(last if dash else first) + 1)
        if not span:
            raise click.UsageError(f"{part.strip()} in {text!r} runs backwards; write 0,2,5-7.")
        if len(span) > _MOST_NUMBERS:
            raise click.UsageError(f"{part.strip()} in {text!r} is more than a million numbers.")
        found += span
    return found


def is_number(text: str) -> bool:
    """Whether a text has a few decimal digits alone; int() raises for thousands of them."""
    return text.isdecimal() and len(text) <= _MOST_DIGITS


def has_wildcards(text: str) -> bool:
    """Whether a text stands for all topics that match it."""
    return any(each in text for each in _WILDCARDS)


def topic_names(cluster: Cluster, texts: Iterable[str]) -> list[str]:
    """The topics of names and patterns with `*`, `?` and `[...]`, each once.

    A pattern matches internal topics only if it begins with `__`. A name without wildcards need not exist. Raises ClientError when no topic
    matches a pattern.
    """
    from fnmatch import fnmatchcase

    from ottla.client.topic_admin import all_topics

    found: list[str] = []
    existing: list[tuple[str, bool]] | None = None
    for text in texts:
        if not has_wildcards(text):
            found.append(text)
            continue
        if existing is None:
            existing = [(topic.name or "", topic.is_internal) for topic in all_topics(cluster)]
        matches = [name for name, is_internal in existing if fnmatchcase(name, text) and (not is_internal or text.startswith("__"))]
        if not matches:
            raise ClientError(f"no topic matches {text!r}")
        found += matches
    return list(dict.fromkeys(found))


def topic_partitions(cluster: Cluster, texts: Iterable[str]) -> list[TopicPartition]:
    """`topic` (all its partitions) or `topic:0,2-4`, where the topic may be a pattern of `topic_names`.

    Raises UsageError, ClientError when there is no such topic.
    """
    from ottla.protocol.topic_partition import TopicPartition

    found: list[TopicPartition] = []
    for text in texts:
        pattern, colon, listed = text.partition(":")
        for topic in topic_names(cluster, [pattern]):
            found += [TopicPartition(topic, number) for number in (numbers(listed) if colon else cluster.partitions(topic))]
    return list(dict.fromkeys(found))


def replica_assignment(text: str) -> list[list[int]]:
    """`0:1,1:2`: per partition its replicas, the first preferred, as Apache Kafka's tools write it. Raises UsageError."""
    found = []
    for partition in text.split(","):
        replicas = partition.strip().split(":")
        if not all(map(is_number, replicas)):
            raise click.UsageError(f"{text!r} is not an assignment; write 0:1,1:2 for two partitions with two replicas each.")
        found.append([int(replica) for replica in replicas])
    return found


def check_brokers(cluster: Cluster, assignment: Iterable[Iterable[int]]) -> None:
    """Raises ClientError when replicas are assigned to a broker that is not alive: they would be created, and never be
    in sync."""
    alive = cluster.broker_ids()
    unknown = {broker for replicas in assignment for broker in replicas}.difference(alive)
    if unknown:
        raise ClientError(f"there is no broker {', '.join(map(str, sorted(unknown)))}; alive are {', '.join(map(str, alive))}")
