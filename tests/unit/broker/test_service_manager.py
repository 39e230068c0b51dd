"""The protocol of systemd's notifications, against a socket that listens as systemd does."""

import asyncio
import contextlib
import socket
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from ottla.broker import service_manager
from ottla.broker.service_manager import ServiceManager


@pytest.fixture
def listening(tmp_path: Path) -> Iterator[socket.socket]:
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as sock:
        sock.bind(str(tmp_path / "notify"))
        sock.settimeout(10)
        yield sock


def received(sock: socket.socket) -> list[str]:
    return sock.recv(4096).decode().splitlines()


def run(work: Callable[[], Awaitable[None]]) -> None:
    async def main() -> None:
        await work()

    asyncio.run(main())


def test_a_broker_reports_its_start_its_readiness_and_its_end(listening: socket.socket, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(service_manager, "BEAT_SECONDS", 0.001)
    status = ["starting, 3 of 9 logs are open"]

    async def work() -> None:
        manager = ServiceManager({"NOTIFY_SOCKET": listening.getsockname()}, lambda: status[0])
        manager.on_starting()
        assert received(listening) == ["STATUS=starting, 3 of 9 logs are open", "EXTEND_TIMEOUT_USEC=30000000"]
        status[0] = "starting, 9 of 9 logs are open"
        await asyncio.sleep(0.01)
        assert received(listening)[0] == "STATUS=starting, 9 of 9 logs are open"
        status[0] = "broker 1 is ready"
        manager.on_ready()
        while (found := received(listening))[0].startswith("STATUS=starting"):
            pass
        assert found == ["READY=1", "STATUS=broker 1 is ready"]
        manager.on_stopping()
        assert received(listening) == ["STOPPING=1"]
        assert received(listening)[1] == "EXTEND_TIMEOUT_USEC=30000000"
        manager.close()

    run(work)


def test_the_watchdog_is_fed_from_the_loop_once_the_broker_is_ready(listening: socket.socket) -> None:
    async def work() -> None:
        environment = {"NOTIFY_SOCKET": listening.getsockname(), "WATCHDOG_USEC": "20000", "WATCHDOG_PID": "5"}
        manager = ServiceManager(environment, lambda: "", process_id=5)
        manager.on_ready()
        assert received(listening)[0] == "READY=1"
        for _ in range(3):
            assert await asyncio.to_thread(received, listening) == ["WATCHDOG=1"]
        manager.close()

    run(work)


def test_readiness_and_the_watchdog_are_reported_again_until_a_busy_manager_takes_them(
    listening: socket.socket, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(service_manager, "BEAT_SECONDS", 0.001)

    async def work() -> None:
        environment = {"NOTIFY_SOCKET": listening.getsockname(), "WATCHDOG_USEC": "600000000"}
        manager = ServiceManager(environment, lambda: "broker 1 is ready")
        with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as others:
            others.setblocking(False)
            with contextlib.suppress(BlockingIOError):
                while True:
                    others.sendto(b"STATUS=of another unit", listening.getsockname())
        manager.on_ready()
        heard: list[str] = []
        while not {"READY=1", "WATCHDOG=1"} <= set(heard):
            heard += await asyncio.to_thread(received, listening)
        manager.close()
        assert heard.count("READY=1") == 1

    run(work)


@pytest.mark.parametrize("changes", [{"WATCHDOG_PID": "6"}, {"WATCHDOG_USEC": "0"}, {"WATCHDOG_USEC": "soon"}])
def test_a_watchdog_that_is_off_or_for_another_process_is_not_fed(listening: socket.socket, changes: dict[str, str]) -> None:
    async def work() -> None:
        environment = {"NOTIFY_SOCKET": listening.getsockname(), "WATCHDOG_USEC": "2000", "WATCHDOG_PID": "5", **changes}
        manager = ServiceManager(environment, lambda: "", process_id=5)
        manager.on_ready()
        await asyncio.sleep(0.01)
        manager.close()
        assert received(listening)[0] == "READY=1"
        listening.setblocking(False)
        with pytest.raises(BlockingIOError):
            listening.recv(1)

    run(work)


def test_an_abstract_socket_is_named_with_an_at_sign() -> None:
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as sock:
        sock.bind("\0ottla-test-of-notify")
        sock.settimeout(10)

        async def work() -> None:
            manager = ServiceManager({"NOTIFY_SOCKET": "@ottla-test-of-notify"}, lambda: "x")
            manager.on_ready()
            manager.close()

        run(work)
        assert received(sock)[0] == "READY=1"


def test_a_socket_that_is_not_there_is_one_line_and_no_failure(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    async def work() -> None:
        manager = ServiceManager({"NOTIFY_SOCKET": str(tmp_path / "none")}, lambda: "x")
        manager.on_starting()
        manager.on_ready()
        manager.on_stopping()
        manager.close()

    run(work)
    (line,) = caplog.messages
    assert line.startswith(f"NOTIFY_SOCKET={tmp_path}/none cannot be written: No such file or directory")


@pytest.mark.parametrize("address", ["NOTIFY_SOCKET", None])
def test_without_a_service_manager_nothing_is_sent(address: str | None, listening: socket.socket, monkeypatch: pytest.MonkeyPatch) -> None:
    sent = []

    class Counted(socket.socket):
        def sendto(self, data: bytes, *to: Any) -> int:
            sent.append(data)
            return super().sendto(data, *to)

    async def work() -> None:
        environment = {"WATCHDOG_USEC": "1000"} if address is None else {"WATCHDOG_USEC": "1000", address: listening.getsockname()}
        manager = ServiceManager(environment, lambda: "x")
        manager.on_starting()
        manager.on_ready()
        manager.on_stopping()
        manager.close()

    monkeypatch.setattr(service_manager.socket, "socket", Counted)
    run(work)
    assert bool(sent) is (address is not None)
