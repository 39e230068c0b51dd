"""Finds Apache Kafka's jars, and fetches them once.

The folder is `APACHE_KAFKA_LIBS` or `~/.cache/apache-kafka-3.9.1`; it holds the jars and the marker `.complete`, written last. The marker
has the hash of the pom: after a change of the pom the jars are fetched anew. Several test processes may ask at once: one of them fetches
under a file lock, the others wait for it. Maven keeps what it fetches, and itself, in `~/.cache/ottla/maven` (never in the user's
repository, whose half-filled entries make other resolvers fail).
"""

import fcntl
import os
import re
import shutil
import subprocess
from contextlib import suppress
from functools import cache
from hashlib import sha256
from pathlib import Path
from typing import NamedTuple

KAFKA_VERSION = "3.9.1"
_POM = Path(__file__).with_name("pom.xml")
_MARKER = ".complete"
_OLDEST_JAVA = 11
_FETCH_SECONDS = 900
_QUICKLY = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC -XX:+UnlockDiagnosticVMOptions -XX:-BytecodeVerificationRemote"
_REPOSITORY = Path.home() / ".cache" / "ottla" / "maven"


class ToolMissingError(RuntimeError):
    """Java or Maven is not there; the message says what to install and how to leave these tests out."""


class Availability(NamedTuple):
    """Whether a program can be used, and if not, why not in one sentence."""

    available: bool
    reason: str

    def __bool__(self) -> bool:
        return self.available


def java_available() -> Availability:
    """Whether `java` on the PATH can run Apache Kafka 3.9."""
    program = shutil.which("java")
    return Availability(False, "no `java` on the PATH: install Java 17") if program is None else _judged(program)


@cache
def _judged(program: str) -> Availability:
    """Asked once: the answer takes a JVM, and each start of a JVM asks."""
    asked = subprocess.run([program, "-version"], capture_output=True, text=True, timeout=60, check=False)
    found = re.search(r'version "(?:1\.)?(\d+)', asked.stderr)
    if asked.returncode != 0 or found is None:
        return Availability(False, f"`java -version` says nothing useful (exit {asked.returncode}): install Java 17")
    if int(found[1]) < _OLDEST_JAVA:
        return Availability(False, f"Java {found[1]} is too old for Apache Kafka {KAFKA_VERSION}: install Java 17")
    return Availability(True, f"Java {found[1]}")


def maven_available() -> Availability:
    """Whether `mvn` is on the PATH; only needed until the jars have been fetched."""
    if shutil.which("mvn") is None:
        return Availability(False, "no `mvn` on the PATH: install Maven")
    return Availability(True, "Maven")


def libs_directory() -> Path:
    """The folder of the jars, filled or not."""
    return Path(os.environ.get("APACHE_KAFKA_LIBS") or Path.home() / ".cache" / f"apache-kafka-{KAFKA_VERSION}")


def ensure_jars() -> Path:
    """The folder that holds Apache Kafka's jars, fetched by Maven if they are not there yet. Raises ToolMissingError."""
    return ensure_jars_of(_POM, libs_directory())


def ensure_jars_of(pom: Path, libs: Path) -> Path:
    """This folder, holding the jars that the project depends on. Raises ToolMissingError."""
    _require(java_available())
    wanted = sha256(pom.read_bytes()).hexdigest()
    if _holds(libs, wanted):
        return libs
    libs.mkdir(parents=True, exist_ok=True)
    with open(libs / ".lock", "w", encoding="utf-8") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not _holds(libs, wanted):  # another process may have fetched them while this one waited
            _require(maven_available())
            (libs / _MARKER).unlink(missing_ok=True)
            for former in libs.glob("*.jar"):
                former.unlink()
            _fetch(pom, libs)
            (libs / _MARKER).write_text(wanted, encoding="utf-8")
    return libs


def _holds(libs: Path, wanted: str) -> bool:
    """Whether the folder has the jars of the pom with this hash. An empty marker, made without a hash, counts as that of this pom."""
    marker = libs / _MARKER
    try:
        found = marker.read_text(encoding="utf-8")
    except FileNotFoundError:
        return False
    if not found:
        with suppress(OSError):  # the folder may be read-only
            marker.write_text(wanted, encoding="utf-8")
    return found in ("", wanted)


def _require(found: Availability) -> None:
    if not found:
        raise ToolMissingError(f'{found.reason}; or leave these tests out with `pytest -m "not java"`')


def _fetch(pom: Path, libs: Path) -> None:
    command = ["mvn", "-q", "-B", "-f", str(pom), f"-Dmaven.repo.local={_REPOSITORY}"]
    command += ["dependency:copy-dependencies", f"-DoutputDirectory={libs}"]
    environment = {**os.environ, "MAVEN_OPTS": f"{_QUICKLY} {os.environ.get('MAVEN_OPTS', '')}"}
    _REPOSITORY.mkdir(parents=True, exist_ok=True)
    with open(_REPOSITORY / ".lock", "w", encoding="utf-8") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)  # two processes of Maven in one repository would disturb each other
        done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=_FETCH_SECONDS, check=False)
    if done.returncode != 0:
        said = (done.stdout + done.stderr).strip().splitlines()[-15:]
        raise ToolMissingError(f"Maven could not fetch what {pom} depends on into {libs}; `{' '.join(command)}` said:\n" + "\n".join(said))
