"""Debezium's embedded engine brings the changes of a table in PostgreSQL to Ottla, and keeps its offsets there, also when it is killed."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from tests.support.broker_process import eventually
from tests.support.cluster import Cluster, a_cluster
from tests.support.neighbours.artifacts import DEBEZIUM, whole
from tests.support.neighbours.debezium import a_relay
from tests.support.neighbours.postgresql import PostgreSQL, a_postgresql, needs_postgresql
from tests.support.neighbours.records import records_of

pytestmark = [*DEBEZIUM.marks, needs_postgresql]

SECONDS = 120.0
TOPIC = "shop.public.items"
TABLE = "CREATE TABLE items (id int PRIMARY KEY, name text NOT NULL, price numeric(8, 2));"


def insert(first: int, count: int) -> str:
    return f"INSERT INTO items SELECT n, 'item ' || n, n FROM generate_series({first}, {first + count - 1}) n;"


def rows_of(database: PostgreSQL) -> dict[int, str]:
    """The table: names by id."""
    return {int(key): name for key, name in (line.split("|") for line in database.ask("SELECT id, name FROM items;").splitlines())}


def changes_in(cluster: Cluster) -> list[tuple[int, dict[str, Any] | None]]:
    """All changes with the id of the row; None is the tombstone that follows a deletion."""
    found = []
    for each in records_of(cluster.bootstrap, TOPIC, 0):
        assert each.key is not None
        found.append((json.loads(each.key)["id"], None if each.value is None else json.loads(each.value)))
    return found


def replayed(changes: list[tuple[int, dict[str, Any] | None]]) -> dict[int, str]:
    """The table that follows from the changes."""
    found: dict[int, str] = {}
    for key, change in changes:
        if change is None or change["op"] == "d":
            found.pop(key, None)
        else:
            assert change["after"]["id"] == key
            found[key] = change["after"]["name"]
    return found


def wait_until_equal(cluster: Cluster, database: PostgreSQL) -> None:
    wanted = rows_of(database)
    eventually(lambda: replayed(changes_in(cluster)) == wanted, SECONDS, "the topic has all changes of the table")


def change(database: PostgreSQL, turn: int) -> None:
    """Rows are inserted, updated and deleted."""
    first = 1_000 * turn
    database.ask(insert(first, 30))
    database.ask(f"UPDATE items SET name = name || ' changed in {turn}' WHERE id % 3 = 0;")
    database.ask(f"DELETE FROM items WHERE id % 5 = 0 AND id > {first};")


@whole
def test_changes_of_a_table_are_records_of_a_topic(tmp_path: Path) -> None:
    DEBEZIUM.jars()
    with a_cluster(tmp_path / "cluster", 1) as cluster, a_postgresql() as database:
        cluster.create_topic(TOPIC)
        database.ask(TABLE + insert(1, 20))
        with a_relay(cluster.bootstrap, database, tmp_path / "debezium"):
            wait_until_equal(cluster, database)
            change(database, 1)
            wait_until_equal(cluster, database)
        assert {"r", "c", "u", "d"} <= {each["op"] for _, each in changes_in(cluster) if each is not None}


@whole
def test_no_change_is_lost_when_the_engine_and_the_broker_are_killed(tmp_path: Path) -> None:
    DEBEZIUM.jars()
    with a_cluster(tmp_path / "cluster", 1) as cluster, a_postgresql() as database:
        cluster.create_topic(TOPIC)
        database.ask(TABLE + insert(1, 20))
        with a_relay(cluster.bootstrap, database, tmp_path / "debezium") as relay:
            wait_until_equal(cluster, database)
            change(database, 1)
            wait_until_equal(cluster, database)
            relay.kill()
            change(database, 2)
            relay.start()
            wait_until_equal(cluster, database)
            cluster.broker(0).kill()
            change(database, 3)
            cluster.broker(0).start()
            wait_until_equal(cluster, database)
        snapshots = [key for key, each in changes_in(cluster) if each is not None and each["op"] == "r"]
        assert sorted(snapshots) == list(range(1, 21)), "the engine began anew instead of at its offset"
