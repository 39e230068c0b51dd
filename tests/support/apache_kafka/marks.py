"""Defines the mark of test modules that need a real Apache Kafka: `pytestmark = needs_apache_kafka`.

The tests are then marked `java`, and skipped with the reason where Java, or Maven while the jars are not fetched yet, is missing.
"""

from pathlib import Path

import pytest

from tests.support.apache_kafka.jars import java_available, libs_directory, maven_available


def _missing(libs: Path) -> str:
    java = java_available()
    if not java:
        return java.reason
    if (libs / ".complete").exists():
        return ""
    maven = maven_available()
    return "" if maven else maven.reason


def needs_jars_in(libs: Path) -> list[pytest.MarkDecorator]:
    """Marks of tests that need what `ensure_jars_of` puts into this folder."""
    missing = _missing(libs)
    return [pytest.mark.java, pytest.mark.skipif(bool(missing), reason=missing or "the jars can be had")]


needs_apache_kafka = needs_jars_in(libs_directory())
