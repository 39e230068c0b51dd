"""How many connections may stand and how fast new ones may come."""

import asyncio
import socket
from collections.abc import Awaitable, Callable
from typing import cast

import pytest

from ottla.broker.configuration import ip_quotas
from ottla.broker.configuration.dynamic_config import DynamicConfig
from ottla.broker.configuration.ip_quotas import IpQuotas
from ottla.broker.network.connection_quotas import MAX_IP_RATES, ConnectionQuotas
from ottla.broker.network.host_names import HostNames, known_hosts
from ottla.broker.network.limits import NetworkLimits, limits_of
from ottla.broker.network.offenders import LINES_PER_WINDOW, MAX_HOSTS, Offenders
from ottla.broker.security.principals import ANONYMOUS, Principal
from ottla.config.broker import BrokerConfig
from ottla.config.errors import ConfigError
from ottla.controller.admin.config_admin import ConfigAdmin
from ottla.controller.znodes.layout import sanitize


def test_a_listener_stops_accepting_at_the_limit_of_the_broker_until_one_closes() -> None:
    quotas = ConnectionQuotas(NetworkLimits(max_connections=2), 0.0)
    assert quotas.open("A", "h1")
    assert quotas.open("B", "h2")
    assert not quotas.has_room("A")
    quotas.close("B", "h2")
    assert quotas.has_room("A")


def test_a_listener_has_a_limit_of_its_own() -> None:
    quotas = ConnectionQuotas(NetworkLimits(listener_max_connections={"A": 1}), 0.0)
    quotas.open("A", "h1")
    assert not quotas.has_room("A")
    assert quotas.has_room("B")
    assert quotas.count("A") == 1


def test_the_inter_broker_listener_accepts_beyond_the_limit_of_the_broker() -> None:
    quotas = ConnectionQuotas(NetworkLimits(max_connections=1), 0.0)
    quotas.protected_listener = "INTERNAL"
    quotas.open("EXTERNAL", "h1")
    assert not quotas.has_room("EXTERNAL")
    assert quotas.has_room("INTERNAL")
    assert not quotas.is_exceeded()
    quotas.open("INTERNAL", "h2")
    assert quotas.is_exceeded()


def test_an_address_has_its_limit_or_its_override() -> None:
    quotas = ConnectionQuotas(NetworkLimits(max_connections_per_ip=1, max_connections_per_ip_overrides={"h2": 2, "h3": 0}), 0.0)
    assert [quotas.open("A", "h1") for _ in range(2)] == [True, False]
    assert [quotas.open("A", "h2") for _ in range(3)] == [True, True, False]
    assert not quotas.open("A", "h3")
    assert quotas.total == 3
    quotas.close("A", "h1")
    assert quotas.open("A", "h1")


def test_connections_beyond_the_creation_rate_wait_their_turn() -> None:
    quotas = ConnectionQuotas(NetworkLimits(max_connection_creation_rate=10), 0.0)
    accepted, now = 0, 0.0
    while now < 2.0:
        delay = quotas.creation_delay("A", now)
        if delay == 0:
            quotas.open("A", "h")
            accepted += 1
        else:
            now += delay
    assert 29 <= accepted <= 31  # one second's worth at once, then 10 a second


def test_a_creation_rate_of_none_accepts_none() -> None:
    quotas = ConnectionQuotas(NetworkLimits(listener_max_connection_creation_rate={"A": 0}), 0.0)
    assert quotas.creation_delay("A", 100.0) > 0
    assert quotas.creation_delay("B", 100.0) == 0


def accepted_of(quotas: ConnectionQuotas, host: str, tries: int, now: float) -> int:
    return sum(quotas.ip_delay(host, now) == 0 for _ in range(tries))


def test_an_address_has_the_rate_of_its_quota_or_the_default() -> None:
    quotas = ConnectionQuotas(NetworkLimits(), 0.0)
    assert accepted_of(quotas, "h1", 1000, 0.0) == 1000
    quotas.set_ip_rate(None, 2)
    quotas.set_ip_rate("h2", 5)
    quotas.set_ip_rate("h3", 0)
    assert [accepted_of(quotas, host, 1000, 1.0) for host in ("h1", "h2", "h3")] == [20, 50, 0]
    assert [accepted_of(quotas, host, 1000, 4.0) for host in ("h1", "h2", "h3")] == [6, 15, 0]
    assert 0 < quotas.ip_delay("h1", 4.0) <= 0.5
    quotas.set_ip_rate("h2", None)
    assert accepted_of(quotas, "h2", 1000, 5.0) == 2
    quotas.set_ip_rate(None, None)
    assert accepted_of(quotas, "h1", 1000, 5.0) == 1000


def test_the_memory_of_addresses_is_bounded() -> None:
    quotas = ConnectionQuotas(NetworkLimits(), 0.0)
    quotas.set_ip_rate(None, 1)
    for i in range(2 * MAX_IP_RATES):
        quotas.ip_delay(f"h{i}", i / 100)
    assert len(quotas._ip_tokens) <= MAX_IP_RATES


def test_the_limits_follow_from_the_configuration_and_its_listener_prefixes() -> None:
    config = BrokerConfig(
        {
            "max.connections": "100",
            "listener.name.external.max.connections": "7",
            "listener.name.external.max.connection.creation.rate": "3",
            "max.connections.per.ip": "20",
            "listeners": "EXTERNAL://:1,INTERNAL://:2",
            "listener.security.protocol.map": "EXTERNAL:PLAINTEXT,INTERNAL:PLAINTEXT",
            "inter.broker.listener.name": "INTERNAL",
            "max.connections.per.ip.overrides": "10.0.0.1:5,0:0:0:0:0:0:0:1:6,::ffff:10.0.0.2:7,localhost:8",
            "num.network.threads": "2",
            "socket.request.max.bytes": "1000",
        }
    )
    limits = limits_of(config, asyncio.run(known_hosts(config)))
    assert limits.max_connections == 100
    assert limits.listener_max_connections == {"EXTERNAL": 7}
    assert limits.listener_max_connection_creation_rate == {"EXTERNAL": 3}
    assert limits.max_connections_per_ip_overrides == {"10.0.0.1": 5, "::1": 6, "10.0.0.2": 7, "127.0.0.1": 8}
    assert (limits.num_network_threads, limits.num_io_threads, limits.socket_request_max_bytes) == (2, 8, 1000)


def test_the_rate_of_an_address_holds_in_whatever_way_it_is_written() -> None:
    quotas = ConnectionQuotas(NetworkLimits(), 0.0)

    class Changes:
        def on_entity_change(self, kind: str, listener: Callable[[str, dict[str, str]], None]) -> None:
            assert kind == "ips"
            listener(sanitize("0:0:0:0:0:0:0:1"), {"connection_creation_rate": "0"})

        def on_reading_again(self, read: Callable[[], Awaitable[None]]) -> None:
            pass

    IpQuotas(cast("ConfigAdmin", None), cast("DynamicConfig", Changes()), quotas)
    assert quotas.ip_delay("::1", 0.0) > 0
    assert quotas.ip_delay("::2", 0.0) == 0


class ChangingQuotas:
    """Stored quotas of addresses, which a test changes, and names, which it resolves."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.quotas = ConnectionQuotas(NetworkLimits(), 0.0)
        self.asked: list[asyncio.Future[str]] = []
        monkeypatch.setattr(ip_quotas, "resolve", self._resolve)
        self.applied = IpQuotas(cast("ConfigAdmin", None), cast("DynamicConfig", self), self.quotas)

    def on_entity_change(self, kind: str, listener: Callable[[str, dict[str, str]], None]) -> None:
        self._listener = listener

    def on_reading_again(self, read: Callable[[], Awaitable[None]]) -> None:
        pass

    def _resolve(self, host: str) -> asyncio.Future[str]:
        self.asked.append(asyncio.get_running_loop().create_future())
        return self.asked[-1]

    async def change(self, host: str, rate: int | None) -> None:
        self._listener(sanitize(host), {} if rate is None else {"connection_creation_rate": str(rate)})
        await asyncio.sleep(0)

    async def answer(self, number: int, address: str) -> None:
        if not self.asked[number].cancelled():
            self.asked[number].set_result(address)
        await asyncio.sleep(0)
        await asyncio.sleep(0)

    def is_limited(self, address: str) -> bool:
        return self.quotas.ip_delay(address, 0.0) > 0


def test_the_last_rate_of_a_host_name_holds_whichever_is_resolved_last(monkeypatch: pytest.MonkeyPatch) -> None:
    async def play() -> None:
        stored = ChangingQuotas(monkeypatch)
        await stored.change("host", 0)
        await stored.change("host", None)
        await stored.answer(0, "10.0.0.1")
        assert not stored.is_limited("10.0.0.1")
        await stored.change("host", 0)
        await stored.change("host", 1_000)
        await stored.answer(2, "10.0.0.1")
        await stored.answer(1, "10.0.0.1")
        assert not stored.is_limited("10.0.0.1")
        await stored.applied.close()

    asyncio.run(play())


def test_in_place_of_a_rate_that_is_no_number_the_former_one_holds_or_none(monkeypatch: pytest.MonkeyPatch) -> None:
    stored = ChangingQuotas(monkeypatch)
    stored._listener("10.0.0.1", {"connection_creation_rate": "many"})
    assert not any(stored.is_limited("10.0.0.1") for _ in range(100))
    stored._listener("10.0.0.2", {"connection_creation_rate": "0"})
    stored._listener("10.0.0.2", {"connection_creation_rate": "many"})
    assert stored.is_limited("10.0.0.2")


def test_the_rate_of_a_host_name_moves_with_its_address(monkeypatch: pytest.MonkeyPatch) -> None:
    async def play() -> None:
        stored = ChangingQuotas(monkeypatch)
        for number, address in enumerate(("10.0.0.1", "10.0.0.2")):
            await stored.change("host", 0)
            await stored.answer(number, address)
            assert stored.is_limited(address)
        assert not stored.is_limited("10.0.0.1")
        await stored.change("host", None)
        assert not stored.is_limited("10.0.0.2")
        await stored.applied.close()

    asyncio.run(play())


def test_of_hosts_with_one_address_the_last_one_counts_and_a_removed_one_leaves_the_other(monkeypatch: pytest.MonkeyPatch) -> None:
    async def play() -> None:
        stored = ChangingQuotas(monkeypatch)
        await stored.change("10.0.0.1", 0)
        await stored.change("host", 1_000)
        await stored.answer(0, "10.0.0.1")
        assert not stored.is_limited("10.0.0.1")
        await stored.change("host", None)
        assert stored.is_limited("10.0.0.1")
        await stored.change("::ffff:10.0.0.1", 1_000)
        assert not stored.is_limited("10.0.0.1")
        await stored.change("10.0.0.1", None)
        assert not stored.is_limited("10.0.0.1")
        await stored.applied.close()

    asyncio.run(play())


def test_a_host_without_an_address_has_no_limit_of_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    def unknown(*_: object, **__: object) -> None:
        raise socket.gaierror(-2, "Name or service not known")

    monkeypatch.setattr(socket, "getaddrinfo", unknown)
    config = BrokerConfig({"max.connections.per.ip.overrides": "nowhere.invalid:5,10.0.0.1:6"})
    with pytest.raises(ConfigError, match=r"max.connections.per.ip.overrides: the host nowhere.invalid cannot be resolved"):
        asyncio.run(known_hosts(config))
    assert limits_of(config, HostNames()).max_connections_per_ip_overrides == {"10.0.0.1": 6}


def test_the_memory_of_offenders_is_bounded() -> None:
    lines: list[str] = []
    offenders = Offenders(lines.append)
    for i in range(3 * MAX_HOSTS):
        offenders.report(f"host{i}", "bad", 1.0)
    assert len(lines) <= MAX_HOSTS + LINES_PER_WINDOW + 1


def test_a_principal_reads_and_writes_as_kafka_shows_it() -> None:
    assert str(ANONYMOUS) == "User:ANONYMOUS"
    assert Principal.parse("User:CN=a:b") == Principal("User", "CN=a:b")
    assert len({Principal("User", "a"), Principal("User", "a"), Principal("Group", "a")}) == 2
