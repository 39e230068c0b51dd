"""Sends orders to the supervisor of a cluster's directory, for the commands of `ottla cluster`."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from ottla.cli.options import client_security

if TYPE_CHECKING:
    from ottla.protocol.client_security import ClientSecurity

COMMAND_SECONDS = 90.0

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


def security_of(directory: Path, command_config: Path | None) -> ClientSecurity:
    """By the given file, or by the file with which the cluster was started. Raises UsageError."""
    from ottla.supervisor import state_file

    return client_security(command_config or state_file.read(directory).command_config)


def tell(directory: Path, order: str, broker_id: int | None = None, *, seconds: float = COMMAND_SECONDS, **more: object) -> dict[str, Any]:
    """Send the supervisor an order; returns its answer. Ends with status 1 when it fails."""
    from ottla.supervisor import control

    directory = directory.absolute()
    try:
        answer = control.ask(directory, {"command": order, "id": broker_id, **more}, seconds)
    except control.NoSupervisor as reason:
        raise SystemExit(f"ottla: {reason}") from None
    except TimeoutError:
        raise SystemExit(f"ottla: {order} was not done within {seconds:.0f} s; `ottla cluster status` shows the progress") from None
    if "error" in answer:
        raise SystemExit(f"ottla: {answer['error']}")
    return answer
