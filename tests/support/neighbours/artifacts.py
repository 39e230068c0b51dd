"""Fetches the jars of the neighbours by Maven, once for each, when the first test needs them.

A neighbour has a pom in this folder. Its jars are in a folder of `NEIGHBOUR_LIBS`, or of `~/.cache/ottla`. A test whose jars cannot be
fetched is skipped with the words of Maven.
"""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import NamedTuple

import pytest

from tests.support.apache_kafka.jars import ToolMissingError, ensure_jars_of
from tests.support.apache_kafka.marks import needs_jars_in

LOG4J = Path(__file__).parents[1] / "apache_kafka" / "log4j.properties"
"""For the JVMs of all neighbours: warnings and errors, to standard error."""


class Neighbour(NamedTuple):
    """A program of other authors. The pom `NAME.xml` has its version."""

    name: str

    @property
    def pom(self) -> Path:
        """The file that names what Maven fetches."""
        return Path(__file__).with_name(f"{self.name}.xml")

    @property
    def version(self) -> str:
        """The version of the pom, which is that of the program."""
        found = re.search(r"<version>(.+?)</version>", self.pom.read_text(encoding="utf-8"))
        assert found is not None, f"{self.pom} has no version"
        return found[1]

    @property
    def libs(self) -> Path:
        """The folder of the jars, filled or not."""
        return Path(os.environ.get("NEIGHBOUR_LIBS") or Path.home() / ".cache" / "ottla") / f"{self.name}-{self.version}"

    @property
    def marks(self) -> list[pytest.MarkDecorator]:
        """Marks of tests that run the program."""
        return [*needs_jars_in(self.libs), pytest.mark.slow, pytest.mark.timeout(600)]  # JVMs, on a busy machine

    def fetch(self) -> Path:
        """The folder with the jars, fetched if they are not there yet. Raises ToolMissingError."""
        return ensure_jars_of(self.pom, self.libs)

    def jars(self) -> Path:
        """The folder with the jars. Skips the test if Maven cannot fetch them."""
        try:
            return self.fetch()
        except ToolMissingError as reason:
            pytest.skip(str(reason))


CONNECT = Neighbour("connect")
STREAMS = Neighbour("streams")
REGISTRY = Neighbour("registry")
FLINK = Neighbour("flink")
DEBEZIUM = Neighbour("debezium")
APACHE_SUITE = Neighbour("apache-suite")
APACHE_SUITE_4 = Neighbour("apache-suite-4")

whole = pytest.mark.skipif("OTTLA_NEIGHBOURS" not in os.environ, reason="make neighbours runs it")
"""Marks all tests of neighbours: most take minutes, and Maven fetches their jars before."""
