"""The example of the README: web events, counted per minute by Structured Streaming into Parquet."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from benchmarks.examples.web_events import count_per_minute, draw, events, send
from tests.support.broker_process import a_broker
from tests.support.spark import needs_spark

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = needs_spark

COUNT = 2_000
WATERMARK_MINUTES = 5


@pytest.mark.soak
def test_every_event_is_counted_in_its_minute(spark: SparkSession, tmp_path: Path) -> None:
    with a_broker(tmp_path / "broker") as broker:
        for _ in range(2):  # the second time both go on
            send(broker.bootstrap, COUNT)
            views = count_per_minute(spark, broker.bootstrap, tmp_path)
        found = {(f"{row.minute:%H:%M}", row.page): row.views for row in views.collect()}
    assert views.count() == len(found)
    said = [json.loads(text) for _, text in events(2 * COUNT)]
    counted = Counter((event["at"][11:16], event["page"]) for event in said)
    minutes = sorted({minute for minute, _ in counted})
    assert len(minutes) > 10
    complete = set(minutes[: -WATERMARK_MINUTES - 1])
    assert {key: views for key, views in found.items() if key[0] in complete} == {k: v for k, v in counted.items() if k[0] in complete}
    assert found.items() <= counted.items()
    draw(views, tmp_path / "views.png")
    assert (tmp_path / "views.png").read_bytes().startswith(b"\x89PNG")
