"""Configurations of groups that a broker reads again, before or after their notification."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from typing import Any, cast

import pytest

from ottla.broker.configuration.resource_configs import GROUPS, ResourceConfigs
from ottla.controller.errors import StoreUnavailable

NEW = {"share.isolation.level": "read_uncommitted"}
FORMER = {"share.isolation.level": "read_committed"}


class Stored:
    """The metadata store, and what notifies of its changes."""

    def __init__(self) -> None:
        self.config: dict[str, str] | Exception = NEW
        self.asked: list[tuple[str, str]] = []

    async def read(self, kind: str, name: str) -> dict[str, str]:
        self.asked.append((kind, name))
        if isinstance(self.config, Exception):
            raise self.config
        return self.config

    async def undisturbed(self, read: Callable[[], Awaitable[None]]) -> None:
        await read()

    def on_entity_change(self, kind: str, callback: object) -> None:
        pass

    def on_reading_again(self, read: object) -> None:
        pass


@pytest.fixture
def stored() -> Stored:
    return Stored()


@pytest.fixture
def configs(stored: Stored) -> ResourceConfigs:
    found = ResourceConfigs(GROUPS, cast("Any", stored), cast("Any", stored))
    found.configs["a group"] = FORMER
    return found


def test_the_stored_configuration_counts(stored: Stored, configs: ResourceConfigs) -> None:
    asyncio.run(configs.read_again("a group"))
    assert stored.asked == [(GROUPS, "a%20group")]
    assert configs.configs == {"a group": NEW}


def test_a_configuration_that_is_deleted_counts_no_more(stored: Stored, configs: ResourceConfigs) -> None:
    stored.config = {}
    asyncio.run(configs.read_again("a group"))
    assert configs.configs == {}


def test_only_a_change_is_reported(stored: Stored, configs: ResourceConfigs) -> None:
    changes: list[None] = []
    configs.on_change(lambda: changes.append(None))
    asyncio.run(configs.read_again("a group"))
    asyncio.run(configs.read_again("a group"))
    assert len(changes) == 1


def test_the_former_configuration_counts_while_the_store_cannot_be_read(
    stored: Stored, configs: ResourceConfigs, caplog: pytest.LogCaptureFixture
) -> None:
    stored.config = StoreUnavailable("store", "gone")
    with caplog.at_level(logging.WARNING):
        asyncio.run(configs.read_again("a group"))
    assert configs.configs == {"a group": FORMER}
    assert [record.getMessage() for record in caplog.records] == ["the configuration of groups/a group cannot be read now: store: gone"]
