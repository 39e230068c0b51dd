"""Which brokers a cluster of one host has, and what is written down of them."""

import json
import os
from pathlib import Path

import pytest

from ottla.cli.cluster.up import _SETTINGS, _arguments, _handed_over, _ids, _left_out
from ottla.config.broker import BrokerConfig
from ottla.supervisor import state_file
from ottla.supervisor.layout import Layout, choose_ports, ids_in
from ottla.supervisor.state_file import ProcessName
from ottla.supervisor.template import Template


@pytest.mark.parametrize(("brokers", "replicas", "in_sync"), [(1, "1", "1"), (2, "2", "1"), (3, "3", "2"), (9, "3", "2")])
def test_replicas_are_three_where_there_are_brokers_for_them_and_one_may_fail(brokers: int, replicas: str, in_sync: str) -> None:
    properties = Layout(Path("/c"), tuple(range(9092, 9092 + brokers)), brokers).properties(0)
    assert {name: value for name, value in properties.items() if "replica" in name or "isr" in name} == {
        "default.replication.factor": replicas,
        "min.insync.replicas": in_sync,
        "offsets.topic.replication.factor": replicas,
        "transaction.state.log.replication.factor": replicas,
        "transaction.state.log.min.isr": in_sync,
    }


def test_brokers_share_a_metadata_file_unless_there_is_a_zookeeper() -> None:
    alone = Layout(Path("/c"), (1, 2), 2).properties(1)
    assert alone["ottla.metadata.file"] == "/c/metadata.db"
    assert "zookeeper.connect" not in alone
    of_zookeeper = Layout(Path("/c"), (1, 2), 2, zookeeper="z:2181/a").properties(1)
    assert of_zookeeper["zookeeper.connect"] == "z:2181/a"
    assert "ottla.metadata.file" not in of_zookeeper


def test_settings_win_and_know_the_broker_they_are_for() -> None:
    layout = Layout(Path("/c"), (1, 2), 2, settings=("min.insync.replicas=1", "ottla.metrics.listener=127.0.0.1:940{id}"))
    properties = layout.properties(1)
    assert properties["min.insync.replicas"] == "1"
    assert properties["ottla.metrics.listener"] == "127.0.0.1:9401"


def test_settings_know_the_port_of_the_broker_they_are_for() -> None:
    layout = Layout(Path("/c"), (31_000, 32_000), 2, settings=("listeners=SSL://127.0.0.1:{port}",))
    assert [layout.properties(broker_id)["listeners"] for broker_id in (0, 1)] == ["SSL://127.0.0.1:31000", "SSL://127.0.0.1:32000"]


def test_a_single_directory_that_is_given_is_the_one_that_is_used() -> None:
    in_file = Layout(Path("/c"), (1, 2), template=Template(Path("f"), {"log.dir": "/data/{id}"}))
    on_line = Layout(Path("/c"), (1, 2), settings=("log.dir=/data/{id}",))
    for properties in (in_file.properties(1), on_line.properties(1)):
        assert (properties["log.dir"], "log.dirs" in properties) == ("/data/1", False)
    both = Layout(Path("/c"), (1, 2), settings=("log.dir=/data/{id}", "log.dirs={dir}"))
    assert both.properties(1)["log.dirs"] == "/c/broker-1"


def test_racks_are_taken_in_turns() -> None:
    layout = Layout(Path("/c"), (1, 2, 3, 4), racks=3)
    assert [layout.rack(broker_id) for broker_id in layout.broker_ids] == ["r0", "r1", "r2", "r0"]


def test_racks_that_are_set_are_those_that_are_shown() -> None:
    layout = Layout(Path("/c"), (1, 2), 2, settings=("broker.rack=zone-{id}",))
    assert layout.sets_racks
    assert [layout.rack(broker_id) for broker_id in layout.broker_ids] == ["zone-0", "zone-1"]
    assert layout.properties(1)["broker.rack"] == "zone-1"


def test_brokers_of_several_hosts_have_ids_and_addresses_of_their_own() -> None:
    layout = Layout(Path("/c"), (9092, 9093), 2, zookeeper="z:2181", first_id=10, host="::1")
    assert layout.bootstrap == "[::1]:9092,[::1]:9093"
    properties = layout.properties(11)
    assert (properties["broker.id"], properties["listeners"], properties["broker.rack"]) == ("11", "PLAINTEXT://[::1]:9093", "r1")
    assert choose_ports(layout.broker_ids, 0, {11: 31_999})[1] == 31_999


def test_what_is_set_can_be_used() -> None:
    BrokerConfig(Layout(Path("/c"), (9092, 9093, 9094), 3).properties(2))


def test_ports_follow_the_first_or_are_kept_and_chosen() -> None:
    assert choose_ports(range(3), 9092, {}) == (9092, 9093, 9094)
    chosen = choose_ports(range(3), 0, {1: 31_999})
    assert chosen[1] == 31_999
    assert len(set(chosen)) == 3


def test_a_cluster_that_is_started_again_has_the_ports_that_it_had() -> None:
    assert choose_ports(range(3), None, {}) == (9092, 9093, 9094)
    assert choose_ports(range(4, 6), None, {}) == (9092, 9093)
    assert choose_ports(range(3), None, {0: 9192, 1: 9193}) == (9192, 9193, 9194)
    chosen = choose_ports(range(3), None, {0: 31_999, 1: 20_500})
    assert chosen[:2] == (31_999, 20_500)
    assert len(set(chosen)) == 3
    near_the_end = choose_ports(range(3), None, {0: 65_534})
    assert near_the_end[0] == 65_534
    assert max(near_the_end) < 65_536


def test_a_host_grows_by_the_ports_after_the_last_and_shrinks_by_the_last_brokers() -> None:
    layout = Layout(Path("/c"), (9092, 9093), first_id=4)
    grown = layout.of_size(4)
    assert (grown.ports, list(grown.broker_ids)) == ((9092, 9093, 9094, 9095), [4, 5, 6, 7])
    assert grown.of_size(2) == layout
    chosen = Layout(Path("/c"), (31_000, 20_500)).of_size(3).ports
    assert chosen[:2] == (31_000, 20_500)
    assert chosen[2] not in chosen[:2]


def test_the_rack_of_a_host_is_its_name_unless_it_is_said_otherwise() -> None:
    layout = Layout(Path("/c"), (1, 2), host_name="host-b")
    assert [layout.rack(broker_id) for broker_id in layout.broker_ids] == ["host-b", "host-b"]
    assert not layout.sets_racks


@pytest.mark.parametrize(
    ("first_id", "brokers", "before", "ids"),
    [
        (None, None, [], (0, 3)),
        (None, 2, [], (0, 2)),
        (None, None, [8, 9], (8, 2)),
        (None, 4, [8, 9], (8, 4)),
        (8, None, [8, 9], (8, 2)),
        (0, None, [8, 9], (0, 3)),
        (5, 1, [8, 9], (5, 1)),
    ],
)
def test_a_directory_keeps_the_ids_of_its_brokers(
    first_id: int | None, brokers: int | None, before: list[int], ids: tuple[int, int]
) -> None:
    assert _ids(first_id, brokers, False, before) == ids


def test_a_setting_is_no_argument_of_a_detached_supervisor_and_no_variable_of_its_brokers() -> None:
    layout = Layout(Path("/c"), (1, 2), settings=("ssl.key.password=key-secret",))
    assert not [word for word in _arguments(layout) if "key-secret" in word]
    environment = {_SETTINGS: json.dumps(layout.settings), "HOME": "/h"}
    assert tuple(_handed_over(environment)) == layout.settings
    assert environment == {"HOME": "/h"}
    assert tuple(_handed_over(environment)) == ()


def test_a_directory_without_its_state_file_is_started_with_the_brokers_that_it_has(tmp_path: Path) -> None:
    assert ids_in(tmp_path / "missing") == []
    for name in ("broker-8.properties", "broker-9.properties", "broker-10.properties", "broker-x.properties", "client.properties"):
        (tmp_path / name).touch()
    assert ids_in(tmp_path) == [8, 9, 10]
    assert _ids(None, None, False, ids_in(tmp_path)) == (8, 3)


def test_brokers_of_a_directory_that_are_not_started_are_named() -> None:
    assert list(_left_out(Path("/c"), [8, 9], range(8, 12))) == []
    (remark,) = _left_out(Path("/c"), [0, 1, 2, 3], range(2))
    assert remark.startswith("broker 2, 3 of /c is not started: ")


def test_the_state_file_gives_back_what_was_written(tmp_path: Path) -> None:
    me = state_file.name_of(os.getpid())
    broker = {"id": 0, "pid": me.pid, "process_started": me.started, "port": 9092, "state": "ready"}
    gone = {"id": 1, "pid": None, "process_started": None, "port": 9093, "state": "stopped"}
    state_file.write(tmp_path, me, [broker, gone])
    written = state_file.read(tmp_path)
    assert (written.supervisor, written.brokers, written.command_config) == (me, {0: broker, 1: gone}, None)
    assert (written.processes(), written.ports()) == ({0: me}, {0: 9092, 1: 9093})
    state_file.write(tmp_path, me, [broker], tmp_path / "client.properties")
    assert state_file.read(tmp_path).command_config == tmp_path / "client.properties"


@pytest.mark.parametrize("content", ["", "{}", "[1]", '{"version": 2}', '{"version": 1, "supervisor": null}'])
def test_a_state_file_that_makes_no_sense_is_as_none(tmp_path: Path, content: str) -> None:
    assert state_file.read(tmp_path) == state_file.Written()
    (tmp_path / state_file.NAME).write_text(content)
    assert state_file.read(tmp_path) == state_file.Written()


def test_a_process_that_was_given_the_number_of_another_is_not_taken_for_it() -> None:
    me = state_file.name_of(os.getpid())
    assert me.is_alive
    assert not ProcessName(me.pid, me.started - 1).is_alive
