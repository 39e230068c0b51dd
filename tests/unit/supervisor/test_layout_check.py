"""Brokers of a host that could not run together are refused before any of them starts, with the file, the key, the value and the reason."""

from pathlib import Path

import pytest

from ottla.config.errors import ConfigError
from ottla.supervisor.layout import Layout
from ottla.supervisor.layout_check import check_layout
from ottla.supervisor.template import Template


def refusal(text: str, directory: Path, *settings: str) -> str:
    """The error of three brokers with this file, without the path of the file."""
    file = directory / "c.properties"
    file.write_text(text)
    with pytest.raises(ConfigError) as refused:
        check_layout(Layout(directory, (9092, 9093, 9094), settings=settings, template=Template.load(file, {})))
    assert "\n" not in str(refused.value)
    return str(refused.value).replace(str(file), "FILE")


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("num.partitions=none", "FILE: Invalid value none for configuration num.partitions: Not a number of type INT"),
        ("broker.rack={rack}", "FILE: broker.rack={rack}: {rack} is no placeholder; those are {id}, {port}, {host}, {dir}"),
        ("broker.id=4", "FILE: broker.id cannot be set for a cluster: every broker has its own; --first-id sets that of the first"),
        (
            "listeners=A://:{port},B://:19092\nlistener.security.protocol.map=A:PLAINTEXT,B:PLAINTEXT\ninter.broker.listener.name=A",
            "FILE: listeners=A://:19092: brokers 0 and 1 would both listen at port 19092; put {port} or {id} into it",
        ),
        (
            "listeners=PLAINTEXT://127.0.0.1:1909{id}",
            "FILE: listeners=PLAINTEXT://127.0.0.1:19090: broker 0 would not listen at its port 9092; put {port} into one of its addresses",
        ),
        (
            "ottla.metrics.listener=127.0.0.1:9404",
            "FILE: ottla.metrics.listener=127.0.0.1:9404: brokers 0 and 1 would both listen at port 9404; put {port} or {id} into it",
        ),
        (
            "log.dirs=/data/{id},/data/all",
            "FILE: log.dirs=/data/1,/data/all: brokers 0 and 1 would both use /data/all; put {id} or {dir} into its name",
        ),
        ("ottla.log.file=/log", "FILE: ottla.log.file=/log is one file for several brokers; put {id} into its name"),
    ],
)
def test_what_cannot_run_together_is_refused(text: str, why: str, tmp_path: Path) -> None:
    found = refusal(text, tmp_path)
    assert found == why or found == why.replace("A://:19092", "A://:9093,B://:19092")


def test_a_setting_of_the_command_line_is_not_said_to_be_in_the_file(tmp_path: Path) -> None:
    assert refusal("num.partitions=2", tmp_path, "num.partitions=none").startswith("Invalid value none for configuration num.partitions")


def test_an_address_of_the_metrics_that_is_none_is_refused_in_one_line(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="Invalid value foo for configuration --metrics: Must be host:port"):
        check_layout(Layout(tmp_path, (9092,), metrics="foo"))


def test_two_addresses_with_one_port_are_allowed_where_they_differ(tmp_path: Path) -> None:
    file = tmp_path / "c.properties"
    file.write_text(
        "listeners=A://127.0.0.1:{port},B://127.0.1.{id}:19092\n"
        "listener.security.protocol.map=A:PLAINTEXT,B:PLAINTEXT\ninter.broker.listener.name=A\n"
    )
    check_layout(Layout(tmp_path, (9092, 9093), template=Template.load(file, {})))


def test_a_mistyped_key_of_all_brokers_is_told_once(tmp_path: Path) -> None:
    layout = Layout(tmp_path, (9092, 9093, 9094), settings=("num.partitons=3",))
    (told,) = check_layout(layout)
    assert told.startswith("Unknown configuration num.partitons: no key of a broker has this name (did you mean num.partitions?)")


def test_the_sample_of_the_package_is_one_for_any_number_of_brokers(tmp_path: Path) -> None:
    sample = Path(__file__).parents[3] / "deploy" / "brokers.properties"
    layout = Layout(tmp_path, tuple(range(9092, 9100)), template=Template.load(sample, {}), first_id=8)
    assert check_layout(layout) == []
    assert {layout.rack(broker_id) for broker_id in layout.broker_ids} == {layout.host_name}
