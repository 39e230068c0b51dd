"""Puts the transactional producers of five clients, and their consumers, behind one face."""

from typing import cast

from tests.support.apache_kafka.marks import needs_apache_kafka
from tests.support.apache_kafka_4 import needs_apache_kafka_4
from tests.support.transactional.async_kafka import AiokafkaClient
from tests.support.transactional.confluent import ConfluentClient
from tests.support.transactional.face import Client, Fenced, Found, Member, Producer, Refused, reads, values_of
from tests.support.transactional.java import Java4Client, JavaClient
from tests.support.transactional.kafka_python import KafkaPythonClient

CLIENTS: dict[str, type[Client]] = {
    each.name: cast("type[Client]", each) for each in (ConfluentClient, KafkaPythonClient, AiokafkaClient, JavaClient, Java4Client)
}
"""By name."""

MARKS = {JavaClient.name: needs_apache_kafka, Java4Client.name: needs_apache_kafka_4}
"""The marks of tests with a client, by its name."""

__all__ = ["CLIENTS", "MARKS", "Client", "Fenced", "Found", "Member", "Producer", "Refused", "reads", "values_of"]
