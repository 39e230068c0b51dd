"""A supervisor whose disk is full, or whose machine starts no process, serves its commands and tries again."""

import asyncio
import errno
import os
import signal
import socket
import subprocess
import threading
from collections.abc import Awaitable, Callable, Iterable
from pathlib import Path
from typing import Any

import pytest

from ottla.cli.main import main
from ottla.config.errors import ConfigError
from ottla.protocol.client_security import PLAINTEXT
from ottla.supervisor import control, state_file, supervisor
from ottla.supervisor.layout import Layout, ids_in
from ottla.supervisor.processes import BrokerProcess, _Output
from ottla.supervisor.state_file import name_of
from ottla.supervisor.supervisor import CannotSupervise, Supervisor, take_lock
from ottla.supervisor.template import Template

SECONDS = 20.0


class FakeProcess:
    """A broker that is ready at once, and ends by every signal."""

    def __init__(self, _: object, __: object, on_ready: Callable[[dict[str, Any]], None], on_exit: Callable[[int], None]) -> None:
        self.name = name_of(os.getpid())
        self._on_exit = on_exit
        self._loop = asyncio.get_running_loop()
        self._loop.call_soon(on_ready, {})

    def send(self, number: signal.Signals) -> None:
        self._loop.call_soon(self._on_exit, 0 if number is signal.SIGTERM else -number)


def supervise(
    directory: Path,
    monkeypatch: pytest.MonkeyPatch,
    orders: Callable[[], Awaitable[Any]],
    process: Any = FakeProcess,
    template: Template | None = None,
) -> Any:
    """The result of `orders`, which are given to a supervisor of one broker once it is ready."""
    monkeypatch.setattr(supervisor, "BrokerProcess", process)
    monkeypatch.setattr(supervisor, "wait_until_converged", lambda *_: None)

    async def play() -> Any:
        ready = asyncio.Event()
        supervised = Supervisor(Layout(directory, (9092,), 1, template=template or Template()), PLAINTEXT)
        running = asyncio.ensure_future(supervised.run(ready.set))
        async with asyncio.timeout(SECONDS):
            await asyncio.wait((running, asyncio.ensure_future(ready.wait())), return_when=asyncio.FIRST_COMPLETED)
            found = await orders()
            await running
        return found

    return asyncio.run(play())


def asking(directory: Path, **request: object) -> Awaitable[control.Answer]:
    return asyncio.to_thread(control.ask, directory, request, SECONDS)


def test_a_command_that_fails_unexpectedly_is_answered_and_logged(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    async def fail(_: control.Answer) -> control.Answer:
        raise ValueError("unexpected")

    async def play() -> control.Answer:
        server = control.ControlServer(tmp_path, fail)
        await server.start()
        try:
            return await asking(tmp_path, command="status")
        finally:
            await server.close()

    assert asyncio.run(play()) == {"error": "ValueError: unexpected"}
    (record,) = caplog.records
    assert record.exc_info is not None
    assert record.getMessage() == "the command 'status' failed"


def test_a_supervisor_that_ends_before_it_has_answered_is_none(tmp_path: Path) -> None:
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as listening, control._address(tmp_path) as address:
        listening.bind(address)
        listening.listen()

        def answer() -> None:
            with listening.accept()[0] as accepted:
                accepted.sendall(b'{"brokers": [')

        thread = threading.Thread(target=answer)
        thread.start()
        with pytest.raises(control.NoSupervisor, match=r"no supervisor runs in .*; `ottla cluster up` starts one"):
            control.ask(tmp_path, {"command": "status"}, SECONDS)
        thread.join()


def test_the_cluster_of_another_user_is_not_called_stopped(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def refuse(_: Path) -> None:
        raise PermissionError(errno.EACCES, os.strerror(errno.EACCES))

    monkeypatch.setattr(control, "_address", refuse)
    for command in ("status", "rolling-restart", "down"):
        with pytest.raises(SystemExit) as ended:
            main(["cluster", command, "--dir", str(tmp_path)], standalone_mode=False)
        assert str(ended.value.code).startswith(f"ottla: {tmp_path}: this user may not reach a supervisor there")
    assert capsys.readouterr().out == ""


def test_a_full_disk_keeps_no_command_from_its_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def refuse(*_: object) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    async def orders() -> list[control.Answer]:
        monkeypatch.setattr(state_file, "write", refuse)
        return [
            await asking(tmp_path, command="kill", id=0),
            await asking(tmp_path, command="status"),
            await asking(tmp_path, command="down"),
        ]

    killed, status, down = supervise(tmp_path, monkeypatch, orders)
    assert (killed, down) == ({}, {})
    assert status["brokers"][0]["reason"] == "ended by signal 9"
    lines = [record.getMessage() for record in caplog.records if "cluster.json" in record.getMessage()]
    assert lines == [f"{tmp_path}/cluster.json cannot be written: No space left on device; it is tried again with each change"]


def test_a_disk_that_stands_still_keeps_no_command_waiting_and_a_stop_meanwhile_counts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    started: list[object] = []
    stands, goes_on = threading.Event(), threading.Event()

    def started_one(*arguments: Any) -> FakeProcess:
        started.append(arguments)
        return FakeProcess(*arguments)

    def stand(*_: object) -> None:
        stands.set()
        goes_on.wait(SECONDS)

    async def orders() -> list[Any]:
        monkeypatch.setattr(state_file, "write", stand)
        try:
            killed = await asking(tmp_path, command="kill", id=0)
            assert await asyncio.to_thread(stands.wait, SECONDS)
            while (status := await asking(tmp_path, command="status"))["brokers"][0]["state"] != "starting":
                pass
            stopping = asyncio.ensure_future(asking(tmp_path, command="stop", id=0))
            while (await asking(tmp_path, command="status"))["brokers"][0]["state"] != "stopping":
                pass
        finally:
            goes_on.set()
        stopped, again = await stopping, await asking(tmp_path, command="status")
        return [killed, status["brokers"][0]["pid"], stopped, again["brokers"][0]["state"], await asking(tmp_path, command="down")]

    assert supervise(tmp_path, monkeypatch, orders, started_one) == [{}, None, {}, "stopped", {}]
    assert len(started) == 1


def test_brokers_are_added_in_order_and_only_the_last_one_that_is_stopped_is_removed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def orders() -> list[control.Answer]:
        return [
            await asking(tmp_path, command="grow", brokers=3),
            await asking(tmp_path, command="remove", id=2),
            await asking(tmp_path, command="stop", id=1),
            await asking(tmp_path, command="remove", id=1),
            await asking(tmp_path, command="stop", id=2),
            await asking(tmp_path, command="remove", id=2),
            await asking(tmp_path, command="status"),
            await asking(tmp_path, command="down"),
        ]

    grown, ready, _, not_last, _, removed, status, _ = supervise(tmp_path, monkeypatch, orders)
    assert grown == {"started": [{"id": 1, "address": "127.0.0.1:9093"}, {"id": 2, "address": "127.0.0.1:9094"}]}
    assert ready == {"error": "broker 2 is ready; only the last one can be removed, when it is stopped"}
    assert not_last == {"error": "broker 1 is stopped; only the last one can be removed, when it is stopped"}
    assert removed == {}
    assert [(broker["id"], broker["state"]) for broker in status["brokers"]] == [(0, "ready"), (1, "stopped")]
    assert list(state_file.read(tmp_path).brokers) == ids_in(tmp_path) == [0, 1]


def test_a_broker_that_is_given_up_when_a_host_grows_is_forgotten(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    class Refusing(FakeProcess):
        """Broker 0 serves, and any other ends before it is ready."""

        def __init__(self, command: list[str], *arguments: Any) -> None:
            if any("broker-0.properties" in word for word in command):
                super().__init__(command, *arguments)
            else:
                self.name, on_exit = name_of(os.getpid()), arguments[-1]
                with (tmp_path / "broker-1.err").open("a") as errors:
                    errors.write("ottla: no disk\n")
                asyncio.get_running_loop().call_soon(on_exit, 1)

    async def orders() -> list[control.Answer]:
        return [await asking(tmp_path, command="grow", brokers=3), await asking(tmp_path, command="status"),
                await asking(tmp_path, command="down")]  # fmt: skip

    grown, status, _ = supervise(tmp_path, monkeypatch, orders, Refusing)
    assert grown == {"error": "broker 1 ended with status 1: no disk", "started": []}
    assert [broker["id"] for broker in status["brokers"]] == [0]


def test_a_file_that_becomes_invalid_while_a_host_grows_leaves_no_broker_behind(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    looks: list[Layout] = []

    def check(layout: Layout) -> None:
        looks.append(layout)
        if len(looks) > 2:  # after both looks before the new broker is added
            raise ConfigError("the file is invalid by now")

    monkeypatch.setattr(supervisor, "check_layout", check)
    monkeypatch.setattr(Layout, "reloaded", lambda layout, _: layout)

    async def orders() -> list[control.Answer]:
        looks.clear()
        return [await asking(tmp_path, command="grow", brokers=2), await asking(tmp_path, command="status"),
                await asking(tmp_path, command="down")]  # fmt: skip

    grown, status, _ = supervise(tmp_path, monkeypatch, orders, template=Template(tmp_path / "c.properties"))
    assert grown == {"error": "the file is invalid by now", "started": []}
    assert [broker["id"] for broker in status["brokers"]] == [0]


def test_no_broker_is_added_to_a_cluster_that_goes_down(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    stopping = asyncio.Event()
    down: list[asyncio.Future[control.Answer]] = []

    class Noted(FakeProcess):
        def send(self, number: signal.Signals) -> None:
            stopping.set()
            super().send(number)

    async def check_ids(_: Layout, broker_ids: Iterable[int]) -> None:
        if 1 in broker_ids:  # the new one, while ZooKeeper is asked for its id
            down.append(asyncio.ensure_future(asking(tmp_path, command="down")))
            await stopping.wait()

    monkeypatch.setattr(supervisor, "check_ids", check_ids)

    async def orders() -> list[control.Answer]:
        return [await asking(tmp_path, command="grow", brokers=2), await down[0]]

    assert supervise(tmp_path, monkeypatch, orders, Noted) == [{"error": "the cluster is going down", "started": []}, {}]


def test_a_process_that_cannot_be_watched_does_not_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    started: list[int] = []

    def refuse(pid: int) -> int:
        started.append(pid)
        raise OSError(errno.EMFILE, os.strerror(errno.EMFILE))

    monkeypatch.setattr(os, "pidfd_open", refuse)

    async def start() -> None:
        BrokerProcess(["cat", "/dev/zero"], subprocess.DEVNULL, lambda _: None, lambda _: None)

    with pytest.raises(OSError, match="Too many open files"):
        asyncio.run(start())
    (pid,) = started
    assert not Path(f"/proc/{pid}").exists()


def test_a_log_that_cannot_be_read_does_not_hide_the_end_of_a_broker(tmp_path: Path) -> None:
    (tmp_path / "log").mkdir()
    assert _Output(tmp_path / "log").last_lines() == []


@pytest.mark.parametrize("is_broker", [True, False])
def test_only_a_process_that_the_last_supervisor_started_is_ended(is_broker: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """After a restart of the machine another process may have the pid and the start time that the file has."""
    arguments = [f"{tmp_path}/broker-0.properties"] if is_broker else []

    async def orders() -> control.Answer:
        return await asking(tmp_path, command="down")

    with subprocess.Popen(["cat", "-", *arguments], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as left:
        assert left.stdin is not None
        assert left.stdout is not None
        left.stdin.write(b"x\n")
        left.stdin.flush()
        left.stdout.readline()  # it runs, and has its arguments
        name = name_of(left.pid)
        broker = {"id": 0, "pid": name.pid, "process_started": name.started, "port": 9092, "state": "ready"}
        state_file.write(tmp_path, name_of(os.getpid()), [broker])
        supervise(tmp_path, monkeypatch, orders)
        ended = left.poll()
        left.terminate()
    assert ended == (-signal.SIGTERM if is_broker else None)


def test_a_lock_that_cannot_be_opened_is_one_line(tmp_path: Path) -> None:
    (tmp_path / ".supervisor.lock").mkdir()  # as little use as the file of another user
    with pytest.raises(CannotSupervise, match=r"/\.supervisor\.lock cannot be opened: Is a directory; start the cluster as the user"):
        take_lock(tmp_path)


@pytest.mark.slow
def test_a_process_that_cannot_be_started_is_started_later(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    attempts: list[None] = []

    def started(*arguments: Any) -> FakeProcess:
        attempts.append(None)
        if len(attempts) < 3:
            raise OSError(errno.EAGAIN, os.strerror(errno.EAGAIN))
        return FakeProcess(*arguments)

    async def orders() -> control.Answer:
        status = await asking(tmp_path, command="status")
        await asking(tmp_path, command="down")
        return status

    (broker,) = supervise(tmp_path, monkeypatch, orders, started)["brokers"]
    assert (broker["state"], broker["restarts"]) == ("ready", 2)
    assert broker["reason"] == "ended with status 1: its process cannot be started: [Errno 11] Resource temporarily unavailable"
