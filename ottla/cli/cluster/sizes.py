"""Implements `ottla cluster grow` and `shrink`: more or fewer brokers while the host's cluster runs.

Both take the number of brokers afterwards, as `up` does. So the same command continues one that was interrupted.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import click

from ottla.cli.brokers import at_once_option, racks_option, throttle_option
from ottla.cli.cluster.orders import COMMAND_SECONDS, directory_option, security_of, tell
from ottla.cli.options import command_config_option, json_option, report_outcomes, reported_errors
from ottla.cli.output import counted, progress_bar, say

if TYPE_CHECKING:
    from ottla.protocol.client_security import ClientSecurity

_START_SECONDS: Final = 60.0
"""Time for the start of one broker, beside that of any command, seconds."""
_RETRY_SECONDS: Final = 60.0
_DONE: Final = "partitions whose move has begun are moved to the end; the same command continues"

count_argument = click.argument("brokers", type=click.IntRange(1, 1000))


@click.command()
@count_argument
@click.option("--move", "does_move", is_flag=True, help="Also move a share of the existing replicas to the new brokers.")
@throttle_option
@at_once_option
@directory_option
@command_config_option
@json_option
def grow(
    brokers: int, does_move: bool, rate: int | None, at_once: int, directory: Path, command_config: Path | None, as_json: bool
) -> None:
    """Start brokers on a running host until it has BROKERS.

    New topics use the new brokers at once; existing partitions stay where they are, unless --move is given.
    """
    before = _sizes(directory)
    if brokers < len(before):
        raise SystemExit(
            f"ottla: {directory.absolute()} has {counted(len(before), 'broker')}; `ottla cluster shrink {brokers}` takes some away"
        )
    seconds = COMMAND_SECONDS + _START_SECONDS * (brokers - len(before))
    started = tell(directory, "grow", seconds=seconds, brokers=brokers)["started"]
    moved = _spread(directory, security_of(directory, command_config), at_once, rate) if does_move else None
    done = {f"broker {each['id']}": f"ready at {each['address']}" for each in started}
    if moved is not None:
        done["partitions"] = f"{moved} moved"
    report_outcomes(((name, None) for name in done), done, as_json=as_json)
    if not done:
        say(f"{directory} has {counted(brokers, 'broker')} already")
    elif not does_move:
        say(f"existing partitions stay where they are; `ottla cluster grow {brokers} --move` moves a share of them to the new brokers")
    _tell_of_defaults(len(before), brokers)


@click.command()
@count_argument
@throttle_option
@at_once_option
@racks_option
@directory_option
@command_config_option
@json_option
def shrink(
    brokers: int, rate: int | None, at_once: int, ignore_racks: bool, directory: Path, command_config: Path | None, as_json: bool
) -> None:
    """Drain and stop the last brokers of a running host until it has BROKERS.

    A partition keeps all its replicas meanwhile. Nothing is changed if there would be too few brokers or racks for them.
    """
    from ottla.supervisor import control
    from ottla.supervisor.shrinking import HowToDrain
    from ottla.supervisor.shrinking import shrink as shrink_host

    before = _sizes(directory)
    if brokers > len(before):
        raise SystemExit(f"ottla: {directory.absolute()} has {counted(len(before), 'broker')}; `ottla cluster grow {brokers}` starts more")
    how = HowToDrain(at_once, rate, ignore_racks)
    security = security_of(directory, command_config)
    with reported_errors(), progress_bar("moving", None, unit="partitions") as advance:
        try:
            removed = shrink_host(directory.absolute(), security, brokers, how, advance, _RETRY_SECONDS)
        except control.NoSupervisor as reason:
            raise SystemExit(f"ottla: {reason}") from None
        except TimeoutError:
            raise SystemExit("ottla: the supervisor did not stop a broker in time; `ottla cluster status` shows it") from None
        except KeyboardInterrupt:
            say(_DONE)
            raise
    done = {f"broker {broker_id}": "drained, stopped and removed" for broker_id in removed}
    report_outcomes(((name, None) for name in done), done, as_json=as_json)
    if not done:
        say(f"{directory} has {counted(brokers, 'broker')} already")
    _tell_of_defaults(len(before), brokers)


def _sizes(directory: Path) -> list[dict[str, Any]]:
    """The brokers of the running supervisor."""
    found: list[dict[str, Any]] = tell(directory, "status")["brokers"]
    return found


def _spread(directory: Path, security: ClientSecurity, at_once: int, rate: int | None) -> int:
    """The number of partitions that were moved."""
    from ottla.client.cluster import Cluster
    from ottla.client.drain import spread
    from ottla.supervisor.layout import address_of

    bootstrap = ",".join(address_of(each) for each in _sizes(directory) if each["state"] == "ready")
    with reported_errors(), Cluster(bootstrap, timeout_seconds=_RETRY_SECONDS, security=security) as cluster:
        try:
            with progress_bar("moving", None, unit="partitions") as advance:
                return spread(cluster, advance, at_once=at_once, rate=rate)
        except KeyboardInterrupt:
            say(_DONE)
            raise


def _tell_of_defaults(before: int, after: int) -> None:
    """Says when the replication factors that the supervisor sets change with the number of brokers."""
    from ottla.supervisor.layout import MOST_REPLICAS

    if min(before, MOST_REPLICAS) != min(after, MOST_REPLICAS):
        say(
            f"new topics are to have {counted(min(after, MOST_REPLICAS), 'replica')} by default, unless the configuration says otherwise: "
            "`ottla cluster rolling-restart` has all brokers apply that"
        )
