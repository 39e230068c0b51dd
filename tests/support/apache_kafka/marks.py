"""Defines the mark of test modules that need a real Apache Kafka: `pytestmark = needs_apache_kafka`.

The tests are then marked `java`, and skipped with the reason where Java, or Maven while the jars are not fetched yet, is missing.
"""

import pytest

from tests.support.apache_kafka.jars import java_available, libs_directory, maven_available


def _missing() -> str:
    java = java_available()
    if not java:
        return java.reason
    if (libs_directory() / ".complete").exists():
        return ""
    maven = maven_available()
    return "" if maven else maven.reason


_MISSING = _missing()

needs_apache_kafka = [pytest.mark.java, pytest.mark.skipif(bool(_MISSING), reason=_MISSING or "Apache Kafka can be started")]
