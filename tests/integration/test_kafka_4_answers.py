"""The versions that need no feature are answered as Apache Kafka 4.4 answers them, scene by scene (`tests/support/kafka_4_scenes.py`)."""

import json
from collections.abc import Iterator
from typing import Any

import pytest

from tests.support.broker_process import a_broker
from tests.support.kafka_4_scenes import RECORDING, play, scenes

RECORDED = {line["scene"]: line["answer"] for line in map(json.loads, RECORDING.read_text().splitlines())}
NAMES = [scene.name for scene in scenes()]


@pytest.fixture(scope="module")
def played(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, Any]]:
    with a_broker(tmp_path_factory.mktemp("kafka-4"), broker_id=1, offsets_topic_num_partitions=4, num_partitions=1) as broker:
        yield dict(play(broker.port))


def test_the_recording_has_every_scene() -> None:
    assert list(RECORDED) == NAMES


@pytest.mark.parametrize("name", NAMES)
def test_a_scene_is_answered_as_by_apache_kafka_4(played: dict[str, Any], name: str) -> None:
    assert json.loads(json.dumps(played[name])) == RECORDED[name]
