"""Implements `ottla doctor`: examines a broker's host and a cluster, and reports faults, their causes and their remedies.

Nothing is changed. Exit status: 0 without a finding, 1 with warnings or if a part could not be examined, 2 with a problem.
"""

from __future__ import annotations

import os
import random
import stat
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import click

from ottla.cli.options import DEFAULT_BOOTSTRAP, Amount, command_config_option, connecting, json_option, profile_option, reported_errors
from ottla.cli.output import counted, print_json, printable

if TYPE_CHECKING:
    from ottla.cli.doctor.kinds import Finding


@click.command()
@click.argument("paths", nargs=-1, type=click.Path(path_type=Path), metavar="[PROPERTIES | DIRECTORY]...")
@click.option("--set", "overrides", multiple=True, metavar="KEY=VALUE", help="A configuration key; overrides the file and the environment.")
@click.option(
    "-b",
    "--bootstrap-server",
    "bootstrap",
    envvar="OTTLA_BOOTSTRAP_SERVER",
    show_envvar=True,
    metavar="HOST:PORT,...",
    help=f"Examine this cluster; by default {DEFAULT_BOOTSTRAP}, unless a path is given.",
)
@profile_option
@click.option(
    "--timeout", "timeout_seconds", type=Amount(0.1, 3600.0), default=10.0, show_default=True, metavar="SECONDS", help="Time for retries."
)
@command_config_option
@json_option
def doctor(
    paths: tuple[Path, ...],
    overrides: tuple[str, ...],
    bootstrap: str | None,
    profile: str | None,
    timeout_seconds: float,
    command_config: Path | None,
    as_json: bool,
) -> None:
    """Examine a broker's host and a cluster, and show what is wrong.

    PROPERTIES is the server.properties of a broker on this host; its log directories are examined, too. DIRECTORY
    is a log directory. The exit status is 0 without a finding, 1 with warnings or if a part could not be examined, 2
    with a problem.
    """
    from ottla.cli.doctor.examination import examine_cluster

    if bootstrap is None and not (paths or overrides):
        bootstrap = DEFAULT_BOOTSTRAP
    target = connecting(bootstrap, timeout_seconds, command_config, profile)
    findings: list[Finding] = []
    notes: list[str] = []
    if paths or overrides:
        findings += _on_this_host(paths, overrides)
    if target is not None:
        of_cluster, notes = examine_cluster(target.bootstrap, target.timeout_seconds, target.security)
        findings += of_cluster
    findings.sort(key=lambda each: -each.kind.severity.value)
    with reported_errors():
        if as_json:
            print_json({"findings": [_json(each) for each in findings], "not_examined": notes})
        else:
            _print(findings, notes)
    raise SystemExit(max((each.kind.severity.value for each in findings), default=int(bool(notes))))


def _on_this_host(paths: Sequence[Path], overrides: Sequence[str]) -> list[Finding]:
    from ottla.cli.doctor.examination import examine_broker, examine_directories
    from ottla.cli.doctor.host import RealHost
    from ottla.cli.doctor.kinds import found
    from ottla.config.broker import BrokerConfig
    from ottla.config.errors import ConfigError
    from ottla.config.loader import load_properties

    host, dice = RealHost(), random.Random()
    # An unreachable path is treated as a directory; its finding reports the error.
    directories = [str(path) for path in paths if not _is_file(path)]
    files: list[Path | None] = [path for path in paths if _is_file(path)]
    findings = examine_directories(directories, host, dice) if directories else []
    for file in files or ([None] if overrides else []):
        try:
            config = BrokerConfig(load_properties(file, os.environ, overrides))
        except ConfigError as error:
            findings.append(found("configuration-invalid", str(error), f"correct {file or 'the option --set'}"))
        else:
            findings += examine_broker(config, host, dice)
    return findings


def _is_file(path: Path) -> bool:
    try:
        return not stat.S_ISDIR(path.stat().st_mode)
    except PermissionError:
        return False
    except OSError:
        return True


def _json(finding: Finding) -> dict[str, str]:
    kind = finding.kind
    return {"id": kind.id, "severity": kind.severity.name.lower(), "what": finding.what, "why": kind.why, "command": finding.command}


def _print(findings: Sequence[Finding], notes: Sequence[str]) -> None:
    for finding in findings:
        kind = finding.kind
        print(f"{kind.severity.name} {kind.id}: {printable(finding.what)}")
        print(f"    why: {kind.why}")
        print(f"    do:  {printable(finding.command)}")
    for note in notes:
        print(f"not examined: {printable(note)}")
    problems = sum(each.kind.severity.value > 1 for each in findings)
    print(f"{counted(problems, 'problem')}, {counted(len(findings) - problems, 'warning')}")
