"""Puts the transactional producers of four clients, and their consumers, behind one face."""

from typing import cast

from tests.support.transactional.async_kafka import AiokafkaClient
from tests.support.transactional.confluent import ConfluentClient
from tests.support.transactional.face import Client, Fenced, Found, Member, Producer, Refused, reads, values_of
from tests.support.transactional.java import JavaClient
from tests.support.transactional.kafka_python import KafkaPythonClient

CLIENTS: dict[str, type[Client]] = {
    each.name: cast("type[Client]", each) for each in (ConfluentClient, KafkaPythonClient, AiokafkaClient, JavaClient)
}
"""By name."""

__all__ = ["CLIENTS", "Client", "Fenced", "Found", "Member", "Producer", "Refused", "reads", "values_of"]
