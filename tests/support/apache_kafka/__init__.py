"""Runs a real Apache Kafka 3.9.1 in ZooKeeper mode and its Java tools, for comparisons in tests and benchmarks.

`ApacheKafka` starts brokers beside one ZooKeeper, `ZooKeeper` starts that alone, `run_tool` runs one of Kafka's command line
tools against any broker. The jars come from Maven once (`ensure_jars`). No process outlives the test process, however that ends.
"""

from tests.support.apache_kafka.brokers import START_SCRIPT_OPTIONS, ApacheKafka
from tests.support.apache_kafka.guard import ProcessGuard, process_guard
from tests.support.apache_kafka.jars import KAFKA_VERSION, ToolMissingError, ensure_jars, java_available, maven_available
from tests.support.apache_kafka.java import DidNotStartError, pinned_to, start_tool
from tests.support.apache_kafka.ports import free_ports
from tests.support.apache_kafka.serving import answers_api_versions, known_brokers
from tests.support.apache_kafka.tools import a_leaving_tool, run_tool
from tests.support.apache_kafka.zookeeper import ZooKeeper

__all__ = [
    "KAFKA_VERSION",
    "START_SCRIPT_OPTIONS",
    "ApacheKafka",
    "DidNotStartError",
    "ProcessGuard",
    "ToolMissingError",
    "ZooKeeper",
    "a_leaving_tool",
    "answers_api_versions",
    "ensure_jars",
    "free_ports",
    "java_available",
    "known_brokers",
    "maven_available",
    "pinned_to",
    "process_guard",
    "run_tool",
    "start_tool",
]
