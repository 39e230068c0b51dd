"""One Apache Kafka and one broker of ours for all modules of this folder: an Apache Kafka costs more to start than most modules to run.

Each module has names of its own for its topics, groups, transactional ids and clients. Some modules work with only one of both brokers, so
a test that lists all that each of them has looks only for its own.
"""

from collections.abc import Iterator

import pytest

from tests.support.apache_kafka import ApacheKafka
from tests.support.command_line import CommandLine
from tests.support.java_pair import Pair, a_pair


@pytest.fixture(scope="package")
def pair(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Pair]:
    with a_pair(tmp_path_factory.mktemp("pair")) as running:
        yield running


@pytest.fixture(scope="package")
def kafka(pair: Pair) -> ApacheKafka:
    return pair.theirs


@pytest.fixture(scope="package")
def ottla(kafka: ApacheKafka) -> CommandLine:
    """The commands, against Apache Kafka."""
    return CommandLine(kafka.bootstrap)
