"""Addresses of listeners are tried before a broker writes anything, and the line about one that cannot be bound names the remedy."""

import asyncio
import errno
import socket

import pytest

from ottla.broker.network.acceptor import BindFailed, check_addresses, counted_host, shown_host
from ottla.broker.network.limits import NetworkLimits
from ottla.config.listeners import EndPoint, SecurityProtocol


def endpoint(port: int, host: str = "127.0.0.1") -> EndPoint:
    return EndPoint("PLAINTEXT", host, port, SecurityProtocol.PLAINTEXT)


def check(*endpoints: EndPoint) -> None:
    async def scenario() -> None:
        await check_addresses(endpoints, NetworkLimits(), asyncio.get_running_loop())

    asyncio.run(scenario())


def test_an_address_at_which_a_program_listens_fails_the_check() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        with pytest.raises(BindFailed, match=rf"127\.0\.0\.1:{port} cannot be bound: .*; stop what uses the address or change"):
            check(endpoint(0), endpoint(port))


def test_a_free_address_passes_again_and_again_and_is_free_afterwards() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
    check(endpoint(port), endpoint(0))
    check(endpoint(port))
    with socket.create_server(("127.0.0.1", port)):
        pass


@pytest.mark.parametrize(
    ("number", "remedy"),
    [
        (errno.EADDRINUSE, "stop what uses the address or change `listeners`"),
        (errno.EACCES, "CAP_NET_BIND_SERVICE, without which it may not listen at port 80, or change `listeners`"),
        (errno.EADDRNOTAVAIL, "let this host have the address or change `listeners`"),
    ],
)
def test_the_remedy_is_that_of_the_reason(number: int, remedy: str) -> None:
    assert str(BindFailed(endpoint(80), OSError(number, "why"))).endswith(remedy)


@pytest.mark.parametrize(
    ("address", "counted", "shown"),
    [
        (("10.0.0.7", 9), "10.0.0.7", "10.0.0.7"),
        (("::ffff:10.0.0.7", 9, 0, 0), "10.0.0.7", "10.0.0.7"),
        (("2001:db8::7", 9, 0, 0), "2001:db8::7", "2001:db8::7"),
        (("fe80::7", 9, 0, 2), "fe80::7", "fe80::7%2"),
    ],
)
def test_a_link_local_address_is_shown_with_the_number_of_its_interface(address: tuple[str | int, ...], counted: str, shown: str) -> None:
    assert (counted_host(address), shown_host(address)) == (counted, shown)
