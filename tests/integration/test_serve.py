"""`ottla serve` as an operator meets it: the line it prints, how it ends, where its configuration comes from."""

import fcntl
import json
import os
import select
import signal
import socket
import sqlite3
import struct
import subprocess
import sys
from contextlib import closing
from importlib.util import find_spec
from pathlib import Path

import pytest

from ottla.broker.metadata_store import METADATA_FILE
from tests.support.apache_kafka.serving import answers_api_versions
from tests.support.broker_process import BrokerProcess, a_broker, eventually
from tests.support.clients import ConfluentClient, KcatClient, Record
from tests.support.serve_command import SERVE, Serving, refused, serving, tree

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="looks at processes as Linux shows them")


def test_one_line_names_the_address_and_nothing_else_is_printed(tmp_path: Path) -> None:
    with serving(tmp_path, "listeners=PLAINTEXT://127.0.0.1:0", f"log.dirs={tmp_path}/data") as broker:
        assert broker.line == f"ottla is ready: PLAINTEXT://127.0.0.1:{broker.ports[0]}\n"
        assert broker.ports[0] > 0
        assert answers_api_versions("127.0.0.1", broker.ports[0])

        assert broker.end() == 0
        assert broker.rest_of_output() == ""


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGHUP])
def test_a_signal_ends_it_with_status_0_and_the_marker_of_a_clean_shutdown(tmp_path: Path, number: signal.Signals) -> None:
    with a_broker(tmp_path) as broker:
        ConfluentClient(broker.bootstrap).produce("t", [Record(b"value")])
        assert not (broker.data / ".kafka_cleanshutdown").exists()
        broker.signal(number)

        assert broker.wait() == 0
        assert json.loads((broker.data / ".kafka_cleanshutdown").read_text())["version"] == 0
        assert "checking" not in broker.start().log()
        assert not (broker.data / ".kafka_cleanshutdown").exists()


def test_a_hangup_that_nohup_ignores_is_ignored(tmp_path: Path) -> None:
    with serving(tmp_path, "listeners=PLAINTEXT://127.0.0.1:0", script="trap '' HUP; exec \"$@\"") as broker:
        broker.signal(signal.SIGHUP)
        assert answers_api_versions("127.0.0.1", broker.ports[0])
        assert "stops" not in broker.log()
        assert broker.end() == 0


def test_closed_standard_input_is_nothing_to_it(tmp_path: Path) -> None:
    with serving(tmp_path, "listeners=PLAINTEXT://127.0.0.1:0", script='exec "$@" <&-') as broker:
        assert answers_api_versions("127.0.0.1", broker.ports[0])
        assert broker.end() == 0


def test_a_line_that_nobody_takes_does_not_end_it(tmp_path: Path) -> None:
    command = [*SERVE, "--set", "listeners=PLAINTEXT://127.0.0.1:0"]
    environment = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[2])}
    log = tmp_path / "log"
    with log.open("w") as errors, Path("/dev/full").open("w") as full:
        process = subprocess.Popen(command, stdout=full, stderr=errors, cwd=tmp_path, env=environment)
    eventually(lambda: "cannot be written to standard output" in log.read_text() or process.poll() is not None)
    process.terminate()

    assert process.wait(60) == 0
    assert "Traceback" not in log.read_text()


def test_a_log_that_nobody_reads_for_a_while_stops_nothing_and_is_complete(tmp_path: Path) -> None:
    unknown = [part for number in range(100) for part in ("--set", f"unknown.{number}=1")]  # a line of the log for each
    command = [*SERVE, "--set", "listeners=PLAINTEXT://127.0.0.1:0", *unknown]
    environment = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[2])}
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, cwd=tmp_path, env=environment) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        fcntl.fcntl(process.stderr, fcntl.F_SETPIPE_SZ, 4096)  # less than these lines
        if not select.select((process.stdout,), (), (), 60)[0]:
            process.kill()
        port = int(process.stdout.readline().rpartition(":")[2])
        assert answers_api_versions("127.0.0.1", port)
        process.terminate()
        _, log = process.communicate(timeout=60)
    assert process.returncode == 0
    assert len(log) > 4096
    assert "is ready after" in log
    assert " stopped" in log


def a_fetch_that_waits(broker: BrokerProcess, topic: str) -> socket.socket:
    """A connection whose Fetch (version 4) waits two minutes for a byte that nobody writes."""
    name = topic.encode()
    partition = struct.pack(">iqi", 0, 0, 1 << 20)
    body = struct.pack(">iiiib", -1, 120_000, 1, 1 << 20, 0) + struct.pack(">ih", 1, len(name)) + name + struct.pack(">i", 1) + partition
    head = struct.pack(">hhih", 1, 4, 7, 4) + b"wait"
    connection = socket.create_connection(("127.0.0.1", broker.port), 10)
    connection.sendall(struct.pack(">i", len(head) + len(body)) + head + body)
    connection.settimeout(0.3)
    with pytest.raises(TimeoutError):
        connection.recv(1)
    return connection


@pytest.mark.parametrize("signals", [1, 2])
def test_a_pending_long_poll_does_not_hold_up_the_end(tmp_path: Path, signals: int) -> None:
    with a_broker(tmp_path) as broker:
        ConfluentClient(broker.bootstrap).create_topic("t")
        with a_fetch_that_waits(broker, "t"):
            for _ in range(signals):
                broker.signal(signal.SIGTERM)

            assert broker.wait(25) == 0  # a drain takes up to 30 s
        assert (broker.data / ".kafka_cleanshutdown").exists()


def test_a_group_that_waits_for_members_does_not_hold_up_a_second_signal(tmp_path: Path) -> None:
    with a_broker(tmp_path, group_initial_rebalance_delay_ms=60_000, offsets_topic_num_partitions=1) as broker:
        ConfluentClient(broker.bootstrap).create_topic("t")
        command = ["kcat", "-b", broker.bootstrap, "-G", "g", "t"]
        member = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        try:
            eventually(lambda: "g" in broker.log() and "rebalance" in broker.log().lower(), 20, "a rebalance")
            broker.signal(signal.SIGTERM)
            broker.signal(signal.SIGTERM)

            assert broker.wait(25) == 0  # a drain takes up to 30 s
        finally:
            member.kill()
            member.wait()


def test_a_port_in_use_is_one_line_and_the_data_stays_as_it_was(tmp_path: Path) -> None:
    with a_broker(tmp_path) as broker:
        ConfluentClient(broker.bootstrap).produce("t", [Record(b"value")])
        assert broker.stop() == 0
        before = tree(broker.data)
        with socket.create_server(("127.0.0.1", broker.port)):
            said = refused(tmp_path, f"listeners=PLAINTEXT://127.0.0.1:{broker.port}", f"log.dirs={broker.data}")

        assert f"127.0.0.1:{broker.port} cannot be bound" in said
        assert tree(broker.data) == before
        broker.start()
        assert [record.value for record in ConfluentClient(broker.bootstrap).consume("t")] == [b"value"]


def test_two_brokers_on_one_directory_are_one_too_many(tmp_path: Path) -> None:
    with a_broker(tmp_path, replica_high_watermark_checkpoint_interval_ms=3_600_000) as broker:  # the first one writes nothing meanwhile
        ConfluentClient(broker.bootstrap).produce("t", [Record(b"value")])
        small = [broker.data / "t-0" / name for name in ("partition.metadata", "leader-epoch-checkpoint")]
        eventually(lambda: all(path.exists() for path in small))  # threads write them, maybe after the record is acknowledged
        before = tree(broker.data)

        said = refused(tmp_path, "listeners=PLAINTEXT://127.0.0.1:0", f"log.dirs={broker.data}")

        assert "another broker uses this log directory" in said
        assert str(broker.data) in said
        assert tree(broker.data) == before
        assert [record.value for record in ConfluentClient(broker.bootstrap).consume("t")] == [b"value"]


def test_a_topic_configuration_that_cannot_be_understood_is_logged_and_the_topic_keeps_its_records(tmp_path: Path) -> None:
    """With the defaults, retention might delete what was to be kept."""
    with a_broker(tmp_path) as broker:
        ConfluentClient(broker.bootstrap).produce("t", [Record(b"value")])
        assert broker.stop() == 0
        with closing(sqlite3.connect(broker.data / METADATA_FILE)) as metadata, metadata:
            assert metadata.execute("UPDATE znode SET data = 'garbage' WHERE path = '/config/topics/t'").rowcount == 1
        broker.start()
        client = ConfluentClient(broker.bootstrap)
        assert [each.value for each in client.consume("t")] == [b"value"]
        assert "a topic without one keeps all records: /config/topics/t: not JSON" in broker.log()


@pytest.mark.parametrize("broken", ["cluster.id=somebodyelse0000000000", "broker.id=77"])
def test_a_directory_of_another_broker_is_refused_and_stays_as_it_was(tmp_path: Path, broken: str) -> None:
    with a_broker(tmp_path, broker_id=3) as broker:
        ConfluentClient(broker.bootstrap).produce("t", [Record(b"value")])
        assert broker.stop() == 0
        properties = broker.data / "meta.properties"
        key = broken.partition("=")[0]
        lines = [broken if line.startswith(f"{key}=") else line for line in properties.read_text().splitlines()]
        properties.write_text("\n".join(lines) + "\n")
        before = tree(broker.data)

        said = refused(tmp_path, "listeners=PLAINTEXT://127.0.0.1:0", f"log.dirs={broker.data}", "broker.id=3")

        assert f"{properties}: {key} is {broken.partition('=')[2]}" in said
        assert tree(broker.data) == before


def test_a_directory_of_an_apache_kafka_cluster_is_refused_and_stays_as_it_was(tmp_path: Path) -> None:
    data = tmp_path / "data"
    data.mkdir()
    (data / "meta.properties").write_text("#\n#Mon Jan 01 00:00:00 UTC 2024\nbroker.id=0\nversion=0\ncluster.id=mGIqPkRqQ3uOZP4WZ9Hl8A\n")
    before = tree(data)

    said = refused(tmp_path, "listeners=PLAINTEXT://127.0.0.1:0", f"log.dirs={data}")

    assert "cluster.id is mGIqPkRqQ3uOZP4WZ9Hl8A" in said
    assert tree(data) == before


def test_directories_whose_metadata_was_lost_are_refused_and_those_in_another_order_are_not(tmp_path: Path) -> None:
    dirs = [str(tmp_path / "a"), str(tmp_path / "b")]
    with a_broker(tmp_path, log_dirs=",".join(dirs)) as broker:
        ConfluentClient(broker.bootstrap).create_topic("t", 4)
        assert broker.stop() == 0
        broker.config["log.dirs"] = ",".join(reversed(dirs))
        broker.start()
        assert ConfluentClient(broker.bootstrap).topics() == {"t": 4}
        assert broker.stop() == 0
        metadata = tmp_path / "a" / METADATA_FILE
        metadata.rename(tmp_path / "away")

        said = refused(tmp_path, "listeners=PLAINTEXT://127.0.0.1:0", f"log.dirs={','.join(dirs)}")

        assert f"{METADATA_FILE}, is in none of the log directories" in said
        assert not metadata.exists()


def test_a_directory_that_cannot_be_made_is_refused(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("not a directory")

    said = refused(tmp_path, "listeners=PLAINTEXT://127.0.0.1:0", f"log.dirs={tmp_path}/file/data")

    assert f"none of the log directories can be used: {tmp_path}/file/data ({tmp_path}/file/data: Not a directory)" in said
    assert (tmp_path / "file").read_text() == "not a directory"


def test_a_directory_of_something_else_is_refused_and_nothing_is_left_in_it(tmp_path: Path) -> None:
    photos = tmp_path / "home" / "photos"
    photos.mkdir(parents=True)

    said = refused(tmp_path, "listeners=PLAINTEXT://127.0.0.1:0", f"log.dirs={tmp_path}/home")

    assert f"{photos}: its name is not that of a partition" in said
    assert list((tmp_path / "home").rglob("*")) == [photos]


@pytest.mark.parametrize(
    ("bad", "complaint"),
    [
        ("num.partitions=many", "Invalid value many for configuration num.partitions: Not a number of type INT"),
        ("log.segment.bytes=3", "Invalid value 3 for configuration log.segment.bytes: Value must be at least 14"),
        ("listeners=PLAINTEXT://127.0.0.1", "listeners"),
        ("without equals", "key=value"),
    ],
)
def test_a_bad_value_is_one_line_and_no_data_is_made(tmp_path: Path, bad: str, complaint: str) -> None:
    said = refused(tmp_path, f"log.dirs={tmp_path}/data", bad)

    assert complaint in said
    assert not (tmp_path / "data").exists()


@pytest.mark.parametrize(
    ("setting", "reason"),
    [
        ("authorizer.class.name=some.Class", "the only authorizer of this server is kafka.security.authorizer.AclAuthorizer"),
        ("super.users=root", "expected a string in format principalType:principalName but got root"),
    ],
)
def test_an_authorizer_that_cannot_be_is_refused_and_not_called_a_key_without_effect(tmp_path: Path, setting: str, reason: str) -> None:
    command = [*SERVE, "--set", setting]
    ended = subprocess.run(command, capture_output=True, text=True, cwd=tmp_path, timeout=90, check=False)

    assert ended.returncode == 1
    assert ended.stderr == f"ottla: {setting}: {reason}\n"
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    ("settings", "complaint"),
    [
        (["listeners=PLAINTEXT://127.0.0.1:0,SSL://127.0.0.1:0"], "listener SSL: it has no private key: set ssl.keystore.location or"),
        (
            ["listeners=PLAINTEXT://127.0.0.1:0,SSL://127.0.0.1:0", "ssl.keystore.location=/no/such/file", "ssl.keystore.type=PEM"],
            "listener SSL: ssl.keystore.location=/no/such/file: No such file or directory",
        ),
        (
            ["listeners=SSL://127.0.0.1:0", "security.inter.broker.protocol=SSL"],
            "listener SSL: it has no private key: set ssl.keystore.location or",
        ),
        (
            ["listeners=PLAINTEXT://127.0.0.1:0,SASL_SSL://127.0.0.1:0"],
            "listener SASL_SSL cannot offer GSSAPI" if find_spec("gssapi") is None else "listener SASL_SSL enables GSSAPI; set it, or",
        ),
        (
            ["listeners=PLAINTEXT://127.0.0.1:0", "listener.name.plaintext.principal.builder.class=some.Class"],
            "Invalid value some.Class for configuration listener.name.plaintext.principal.builder.class: only org.apache.kafka",
        ),
    ],
)
def test_a_listener_that_cannot_be_secured_is_one_line(tmp_path: Path, settings: list[str], complaint: str) -> None:
    said = refused(tmp_path, *settings, f"log.dirs={tmp_path}/data")

    assert complaint in said


def test_a_zookeeper_that_is_not_there_is_one_line(tmp_path: Path) -> None:
    said = refused(
        tmp_path,
        "listeners=PLAINTEXT://127.0.0.1:0",
        f"log.dirs={tmp_path}/data",
        "zookeeper.connect=127.0.0.1:1",
        "zookeeper.connection.timeout.ms=300",
    )

    assert "zookeeper.connect=127.0.0.1:1: no session with ZooKeeper within 300 ms" in said
    assert not (tmp_path / "data" / "meta.properties").exists()


def test_a_signal_ends_the_wait_for_a_zookeeper(tmp_path: Path) -> None:
    settings = ("zookeeper.connect=127.0.0.1:1", "zookeeper.connection.timeout.ms=600000", f"log.dirs={tmp_path / 'data'}")
    command = [*SERVE, *(part for setting in settings for part in ("--set", setting))]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        eventually((tmp_path / "data" / ".lock").exists, what="it has its directory")
        process.send_signal(signal.SIGTERM)
        output, said = process.communicate(timeout=60)
    assert (process.returncode, output) == (0, ""), said
    assert "stopped before it was ready" in said
    assert "Traceback" not in said


def test_an_unknown_key_is_a_warning(tmp_path: Path) -> None:
    with serving(tmp_path, "listeners=PLAINTEXT://127.0.0.1:0", f"log.dirs={tmp_path}/data", "num.patritions=3") as broker:
        warnings = [line for line in broker.log().splitlines() if "WARNING" in line]
        assert len(warnings) == 1
        assert "num.patritions" in warnings[0]


def test_the_file_the_environment_and_the_command_line_each_beat_the_one_before(tmp_path: Path) -> None:
    file = tmp_path / "server.properties"
    file.write_text(
        "# as Apache Kafka's\nbroker.id = 1\nnum.partitions=2\\\n  1\ndefault.replication.factor:1\n"
        f"listeners=PLAINTEXT://127.0.0.1:1\nlog.dirs={tmp_path}/data\nlog.retention.hours=5\n"
    )
    environment = {"KAFKA_LISTENERS": "PLAINTEXT://127.0.0.1:0", "KAFKA_BROKER_ID": "2", "KAFKA_HEAP_OPTS": "-Xmx1g"}
    with serving(tmp_path, "broker.id=3", file=file, environment=environment) as broker:
        client = ConfluentClient(broker.bootstrap)
        KcatClient(broker.bootstrap).produce("t", [Record(b"value")])

        assert client.topics() == {"t": 21}
        assert client.config("t")["retention.ms"] == str(5 * 3600 * 1000)
        assert "broker.id=3" in (tmp_path / "data" / "meta.properties").read_text()
        assert "WARNING" not in broker.log()


def test_a_file_that_is_not_there_is_one_line(tmp_path: Path) -> None:
    done = subprocess.run([*SERVE, "missing.properties"], capture_output=True, text=True, cwd=tmp_path, timeout=30, check=False)

    assert done.returncode == 1
    assert done.stderr == "ottla: missing.properties cannot be read: No such file or directory\n"
    assert list(tmp_path.iterdir()) == []


@pytest.mark.skipif(not socket.has_ipv6 or not os.path.exists("/proc/net/if_inet6"), reason="no IPv6 here")
def test_an_ipv6_listener_is_advertised_in_brackets(tmp_path: Path) -> None:
    with serving(tmp_path, "listeners=PLAINTEXT://[::1]:0", f"log.dirs={tmp_path}/data") as broker:
        assert broker.line == f"ottla is ready: PLAINTEXT://[::1]:{broker.ports[0]}\n"
        client = ConfluentClient(f"[::1]:{broker.ports[0]}")
        client.produce("t", [Record(b"value")])
        assert [record.value for record in client.consume("t")] == [b"value"]


def test_two_listeners_tell_their_clients_their_own_addresses(tmp_path: Path) -> None:
    def addresses(broker: Serving, port: int) -> set[str]:
        return {line.split(" at ")[1].split()[0] for line in KcatClient(f"127.0.0.1:{port}").run("-L").splitlines() if " at " in line}

    settings = (
        "listeners=INSIDE://127.0.0.1:0,OUTSIDE://127.0.0.1:0",
        "advertised.listeners=INSIDE://127.0.0.1:0,OUTSIDE://localhost:0",
        "listener.security.protocol.map=INSIDE:PLAINTEXT,OUTSIDE:PLAINTEXT",
        "inter.broker.listener.name=INSIDE",
    )
    with serving(tmp_path, *settings, f"log.dirs={tmp_path}/data") as broker:
        inside, outside = broker.ports
        assert broker.line == f"ottla is ready: INSIDE://127.0.0.1:{inside}, OUTSIDE://localhost:{outside}\n"
        assert addresses(broker, inside) == {f"127.0.0.1:{inside}"}
        assert addresses(broker, outside) == {f"localhost:{outside}"}


def test_help_imports_nothing_that_takes_time() -> None:
    asked = "import sys; sys.argv = ['ottla', '--help']; from ottla.cli.main import main; main(standalone_mode=False); print(*sys.modules)"
    done = subprocess.run([sys.executable, "-c", asked], capture_output=True, text=True, timeout=30, check=True)

    assert "serve" in done.stdout
    modules = set(done.stdout.splitlines()[-1].split())
    assert modules.isdisjoint(
        {"asyncio", "uvloop", "rich", "kazoo", "sqlite3", "ottla.config.broker", "ottla.broker.server", "ottla.cli.serve"}
    )
