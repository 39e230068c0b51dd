"""Quotas in the metadata store: which node limits whom, and what an unreadable value does."""

import asyncio
import logging
from collections.abc import Awaitable, Callable
from typing import cast

import pytest

from ottla.broker.configuration.client_quotas import StoredQuotas
from ottla.broker.configuration.dynamic_config import DynamicConfig, EntityChanged
from ottla.broker.quotas.client_quotas import ClientQuotas, Windows
from ottla.broker.quotas.quota_bounds import ABSENT, Tags
from ottla.controller.admin.config_admin import ConfigAdmin, Malformed

WINDOWS = Windows(11, 1000)


class Store:
    """The entities of a metadata store, and the listeners to their changes."""

    def __init__(self, **entities: dict[str, dict[str, str]]) -> None:
        self.entities = entities
        self.listeners: dict[str, EntityChanged] = {}

    async def read_all(self, entity_type: str, malformed: Malformed) -> dict[str, dict[str, str]]:
        return self.entities.get(entity_type, {})

    async def read_user_clients(self, malformed: Malformed) -> dict[str, dict[str, str]]:
        return self.entities.get("pairs", {})

    def on_entity_change(self, entity_type: str, callback: EntityChanged) -> None:
        self.listeners[entity_type] = callback

    def on_reading_again(self, read: Callable[[], Awaitable[None]]) -> None:
        pass

    async def read_first(self, read: Callable[[], Awaitable[None]]) -> None:
        await read()

    def load(self) -> ClientQuotas:
        quotas = ClientQuotas(WINDOWS, WINDOWS, WINDOWS, lambda: 0)
        asyncio.run(StoredQuotas(cast("ConfigAdmin", self), cast("DynamicConfig", self), quotas).load())
        return quotas


def test_stored_quotas_count_from_the_start() -> None:
    quotas = Store(
        clients={"c%201": {"producer_byte_rate": "100"}, "<default>": {"producer_byte_rate": "200"}},
        users={
            "alice%2Fadmin": {"producer_byte_rate": "300", "SCRAM-SHA-256": "salt=..."},
            "<default>": {"controller_mutation_rate": "1.5"},
        },
        pairs={"alice%2Fadmin/clients/c%201": {"consumer_byte_rate": "400"}, "<default>/clients/<default>": {"request_percentage": "50.5"}},
    ).load()
    assert quotas.produce.bounds.find("bob", "c 1") == (Tags(ABSENT, "c 1"), 100)
    assert quotas.produce.bounds.find("bob", "other") == (Tags(ABSENT, "other"), 200)
    assert quotas.produce.bounds.find("alice/admin", "c 1") == (Tags("alice/admin", ABSENT), 300)
    assert quotas.fetch.bounds.find("alice/admin", "c 1") == (Tags("alice/admin", "c 1"), 400)
    assert quotas.fetch.bounds.find("alice/admin", "c 2") is None
    assert quotas.request.bounds.find("bob", "other") == (Tags("bob", "other"), 50.5)
    assert quotas.mutations.bounds.find("bob", "other") == (Tags("bob", ABSENT), 1.5)


def test_a_change_replaces_all_quotas_of_the_entity() -> None:
    store = Store(users={"alice": {"producer_byte_rate": "300"}})
    quotas = store.load()
    store.listeners["users"]("alice", {"consumer_byte_rate": "5"})
    assert quotas.produce.bounds.find("alice", "app") is None
    assert quotas.fetch.bounds.find("alice", "app") == (Tags("alice", ABSENT), 5)
    store.listeners["users"]("alice/clients/app", {"consumer_byte_rate": "6"})
    assert quotas.fetch.bounds.find("alice", "app") == (Tags("alice", "app"), 6)
    store.listeners["users"]("alice", {})
    store.listeners["users"]("alice/clients/app", {})
    assert not quotas.is_limited
    store.listeners["clients"]("<default>", {"request_percentage": "10"})
    assert quotas.counts_time


@pytest.mark.parametrize("text", ["", "many", "1.5", "0x10"])
def test_in_place_of_a_value_that_is_no_number_the_former_quota_counts_or_none(text: str, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.ERROR):
        store = Store(users={"alice": {"producer_byte_rate": text, "consumer_byte_rate": "7"}})
        quotas = store.load()
    assert quotas.produce.bounds.find("alice", "app") is None
    assert quotas.fetch.bounds.find("alice", "app") == (Tags("alice", ABSENT), 7)
    (line,) = [record.getMessage() for record in caplog.records]
    assert line == f"quota of user alice: producer_byte_rate={text} is not a number; there is none; set it again"
    store.listeners["users"]("alice", {"producer_byte_rate": "300"})
    store.listeners["users"]("alice", {"producer_byte_rate": text})
    assert quotas.produce.bounds.find("alice", "app") == (Tags("alice", ABSENT), 300)


def test_a_credential_of_a_user_is_no_quota() -> None:
    quotas = Store(users={"alice": {"SCRAM-SHA-256": "salt=..."}}).load()
    assert not quotas.is_limited
