"""What the doctor makes of ZooKeeper servers: a real one, one that is down, one that is silent, one without a majority."""

import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from ottla.cli.doctor import zookeeper
from ottla.cli.doctor.zookeeper import ServerFacts, ask_server, ask_servers, check_zookeeper, not_reached
from tests.support.broker_process import eventually
from tests.support.zookeeper import a_zookeeper

IDLE = b"This ZooKeeper instance is not currently serving requests\n"


@contextmanager
def a_server(answer: bytes, *, hangs: bool = False) -> Iterator[str]:
    """The address of a server that gives this answer to one connection, or says nothing."""
    end = threading.Event()
    with socket.create_server(("127.0.0.1", 0)) as listening:

        def serve() -> None:
            connection, _ = listening.accept()
            with connection:
                connection.sendall(answer)
                if hangs:
                    end.wait(30)
                else:
                    connection.recv(4)

        thread = threading.Thread(target=serve)
        thread.start()
        yield f"127.0.0.1:{listening.getsockname()[1]}"
        end.set()
        thread.join()


@pytest.mark.java
@pytest.mark.slow
def test_a_real_server_tells_its_latency_with_the_words_that_it_allows_by_default(tmp_path: Path) -> None:
    with a_zookeeper(tmp_path, {"4lw.commands.whitelist": "srvr,ruok"}) as server:
        eventually(lambda: ask_server(server.connect).is_serving, what="the server has started")
        (found,) = ask_servers([f"{server.connect}/path", server.connect])
    assert (found.address, found.error, found.is_serving) == (server.connect, "", True)
    assert found.average_seconds is not None
    assert 0 <= found.average_seconds < 5


def test_a_server_without_a_majority_is_a_problem() -> None:
    with a_server(IDLE) as address:
        found = ask_server(address)
    assert not found.is_serving
    assert [each.kind.id for each in check_zookeeper([found])] == ["zookeeper-unreachable"]


def test_a_server_that_does_not_speak_in_text_is_alive(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(zookeeper, "_ANSWER_SECONDS", 0.2)
    with a_server(b"", hangs=True) as address:
        assert ask_server(address) == ServerFacts(address)
    with a_server(b"\x15\x03\x03\x00\x02\x02\x46") as address:
        assert ask_server(address) == ServerFacts(address)


def test_a_server_that_is_down_is_found_beside_one_that_is_alive() -> None:
    with socket.create_server(("127.0.0.1", 0)) as unused:
        address = f"127.0.0.1:{unused.getsockname()[1]}"
    down = ask_server(address)
    assert down.error == "Connection refused"
    (finding,) = check_zookeeper([ServerFacts("zk-1:2181"), down])
    assert (finding.kind.id, finding.what) == ("zookeeper-server-down", f"{address}: Connection refused")


def test_servers_that_this_host_does_not_reach_are_not_called_down() -> None:
    down = ServerFacts("zk-1:2181", "No route to host")
    assert list(check_zookeeper([down])) == []
    assert not_reached([down]) == ["ZooKeeper: this host does not reach zk-1:2181 (No route to host)"]
    assert not_reached([down, ServerFacts("zk-2:2181")]) == []
    assert not_reached([]) == []


def test_a_value_that_names_no_server_is_passed_over() -> None:
    assert ask_servers(["", "zk:99999"]) == []
