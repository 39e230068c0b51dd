"""Lists, before a test run, programs that some tests need and that are missing; as root on Debian or Ubuntu, installs them.

`python -m tests.support.prerequisites cc kcat` looks only for these programs. Tests without their program are skipped with the reason; this
module reports the missing programs before the run.
"""

import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Collection
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from functools import partial

from tests.support import kerberos
from tests.support.apache_kafka import DidNotStartError, ToolMissingError, ensure_jars
from tests.support.apache_kafka.training import write_missing_archives
from tests.support.go_programs import missing_go
from tests.support.old_java import ensure_old_jars
from tests.support.promtool import fetch_promtool, find_promtool
from tests.support.spark import fetch_connector

PROGRAMS = {
    "cc": ("gcc", "tests of the load generator"),
    "kcat": ("kcat", "tests with kcat"),
    "java": ("openjdk-17-jre-headless", "tests with Apache Kafka's own tools"),
    "mvn": ("maven", "fetching Apache Kafka's tools"),
    **{program: (package, "tests of Kerberos") for program, package in kerberos.PROGRAMS.items()},
    "krb5-config": ("libkrb5-dev", "compiling the package gssapi, and so tests of Kerberos"),
    kerberos.SASL_PLUGIN: ("libsasl2-modules-gssapi-mit", "tests of kcat with Kerberos"),
    "promtool": ("prometheus", "checks of the expressions for Prometheus"),
    "debootstrap": ("debootstrap", "tests of the packages for servers"),
    "ip": ("iproute2", "tests of the packages for servers"),
}
GO = "go"
"""Named and not installed, since Debian's package is too old."""
UNASKED = [*(program for program in PROGRAMS if program not in ("debootstrap", "ip")), GO]
"""The programs for `make test`; `make package-test` asks for the other two."""


def missing_programs(wanted: Collection[str]) -> list[str]:
    """Those that are neither on the PATH, nor among the programs for administrators, nor fetched already."""
    return [program for program in wanted if (find_promtool() if program == "promtool" else kerberos.path_of(program)) is None]


def can_install() -> bool:
    """Whether this is a Debian or Ubuntu machine and we are root."""
    return shutil.which("apt-get") is not None and os.geteuid() == 0


def install(package: str) -> None:
    """Install a package, or take promtool out of its package; apt says so when that fails."""
    is_taken_out = package == PROGRAMS["promtool"][0]
    print(f"taking promtool out of {package} ..." if is_taken_out else f"installing {package} ...", flush=True)
    get = fetch_promtool if is_taken_out else partial(_install_package, package)
    try:
        get(subprocess.DEVNULL)
    except subprocess.CalledProcessError:
        subprocess.run(["apt-get", "update", "--quiet=2"], stdout=subprocess.DEVNULL, check=False)
        with suppress(subprocess.CalledProcessError):
            get(None)


def _install_package(package: str, errors: int | None) -> None:
    environment = {**os.environ, "DEBIAN_FRONTEND": "noninteractive"}
    options = ("--yes", "--quiet=2", "--no-install-recommends", "--option=DPkg::Lock::Timeout=120")  # another installation may be at work
    command = ["apt-get", "install", *options, package]
    subprocess.run(command, env=environment, stdout=subprocess.DEVNULL, stderr=errors, check=True)


def prepare_apache_kafka() -> None:
    """Fetch Apache Kafka, an old release of it and Spark's connector, and have JVMs of the first start sooner.

    Says so when that fails. Maven waits for its answers most of the time, so the others are fetched while archives are written.
    """
    jars = (ensure_jars, ensure_old_jars)
    with ThreadPoolExecutor(1) as beside:
        first, *others = [beside.submit(fetch) for fetch in jars]
        outcomes: list[Callable[[], object]] = [first.result, write_missing_archives, fetch_connector, *(other.result for other in others)]
        for outcome in outcomes:
            try:
                outcome()
            except (ToolMissingError, DidNotStartError, subprocess.SubprocessError, OSError) as failure:
                print(f"Apache Kafka is not prepared: {failure}", file=sys.stderr)


def main(wanted: Collection[str]) -> None:
    """Install what can be installed, name what stays missing, prepare what only needs to be done once."""
    if GO in wanted and (remedy := missing_go()):
        print(f"missing: {GO}: tests of Go clients will be skipped ({remedy})", file=sys.stderr)
    wanted = [program for program in wanted if program != GO]
    if can_install() and (missing := missing_programs(wanted)):
        packages = ", ".join(dict.fromkeys(PROGRAMS[program][0] for program in missing))
        print(f"as root on Debian: apt-get installs {packages}; without them the tests that need them would be skipped", flush=True)
        for package in dict.fromkeys(PROGRAMS[program][0] for program in missing):
            install(package)
    for program in missing_programs(wanted):
        package, purpose = PROGRAMS[program]
        print(f"missing: {program}: {purpose} will be skipped (Debian, Ubuntu: apt-get install {package})", file=sys.stderr)
    if {"java", "mvn"} <= {*wanted} - {*missing_programs(wanted)}:
        prepare_apache_kafka()


if __name__ == "__main__":
    main(sys.argv[1:] or UNASKED)
