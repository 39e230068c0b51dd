"""Writes web events to a topic, counts them per minute and page with Spark Structured Streaming into Parquet, and draws them.

    ottla serve &
    python -m benchmarks.examples.web_events --bootstrap 127.0.0.1:9092 --out web-events

A second run continues: it writes the next events, and counts only those, from the checkpoint on.
"""

from __future__ import annotations

import argparse
import json
import random
import time
from collections.abc import Iterator, Sequence
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

PAGES = {"/": 50, "/search": 25, "/product": 18, "/cart": 5, "/checkout": 2}
COLOURS = ("#1f6f8b", "#5b7f52", "#c2571a", "#8a6fa8", "#b3362b")
TOPIC = "web-events"
SCHEMA = "at timestamp, user string, page string, ms int"
BEGIN_S = 1_735_689_600  # 2025-01-01T00:00:00Z
_WAVE_S = 1200


def events(count: int, seed: int = 1) -> Iterator[tuple[str, str]]:
    """User and JSON of events in the order of their time, a quiet and a busy time in turns."""
    chance = random.Random(seed)
    at = float(BEGIN_S)
    for _ in range(count):
        busy = 1 + 3 * (int(at - BEGIN_S) % _WAVE_S > _WAVE_S // 2)
        at += chance.expovariate(busy)
        user = f"user-{int(chance.paretovariate(1.2))}"
        page = chance.choices(list(PAGES), list(PAGES.values()))[0]
        event = {
            "at": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(at)),
            "user": user,
            "page": page,
            "ms": int(chance.lognormvariate(4, 0.6)),
        }
        yield user, json.dumps(event)


def send(bootstrap: str, count: int) -> None:
    """Write the events after those in the topic; the events of a user stay in order."""
    from confluent_kafka import Producer

    producer = Producer({"bootstrap.servers": bootstrap, "enable.idempotence": True, "linger.ms": 20})
    there = _sent(bootstrap)
    for user, event in islice(events(there + count), there, None):
        producer.produce(TOPIC, event, user)
        producer.poll(0)
    producer.flush(30)


def _sent(bootstrap: str) -> int:
    """The number of events in the topic so far; 0 without a topic."""
    from confluent_kafka import Consumer, TopicPartition

    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": TOPIC})
    try:
        partitions = consumer.list_topics(TOPIC, timeout=30).topics[TOPIC].partitions
        return sum(consumer.get_watermark_offsets(TopicPartition(TOPIC, number), timeout=30)[1] for number in partitions)
    finally:
        consumer.close()


def count_per_minute(spark: SparkSession, bootstrap: str, out: Path) -> DataFrame:
    """Count the events of the topic that are not counted yet, per minute and page, into Parquet. Returns all counts.

    A minute is written once an event is five minutes younger, since no more events of the minute are expected then.
    """
    from pyspark.sql import functions as fn

    source = spark.readStream.format("kafka").option("kafka.bootstrap.servers", bootstrap).option("subscribe", TOPIC)
    source = source.option("startingOffsets", "earliest").option("maxOffsetsPerTrigger", "5000")
    read = source.load().select(fn.from_json(fn.col("value").cast("string"), SCHEMA).alias("event")).select("event.*")
    per_minute = (
        read.withWatermark("at", "5 minutes")
        .groupBy(fn.window("at", "1 minute").alias("minute"), "page")
        .agg(fn.count("*").alias("views"), fn.avg("ms").alias("ms"))
        .select(fn.col("minute.start").alias("minute"), "page", "views", "ms")
    )
    query = (
        per_minute.writeStream.format("parquet")
        .option("path", str(out / "views"))
        .option("checkpointLocation", str(out / "checkpoint"))
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination()
    return spark.read.parquet(str(out / "views"))


def draw(views: DataFrame, picture: Path) -> None:
    """Draw a stacked chart of the views per minute."""
    import matplotlib as mpl

    mpl.use("agg")
    from matplotlib import pyplot as plt

    rows = views.orderBy("minute").collect()
    minutes = sorted({row.minute for row in rows})
    counted = {(row.minute, row.page): row.views for row in rows}
    pages = [page for page in PAGES if any(row.page == page for row in rows)]
    figure, axes = plt.subplots(figsize=(8, 3.2), layout="constrained")
    heights = [[counted.get((minute, page), 0) for minute in minutes] for page in pages]
    axes.stackplot(range(len(minutes)), heights, labels=pages, colors=COLOURS)
    axes.set_xlabel("minute")
    axes.set_ylabel("views per minute")
    axes.set_xlim(0, max(len(minutes) - 1, 1))
    axes.spines[["top", "right"]].set_visible(False)
    axes.legend(frameon=False, ncols=len(pages), loc="lower left", bbox_to_anchor=(0, 1))
    figure.savefig(picture, dpi=80)
    plt.close(figure)


def main(arguments: Sequence[str] | None = None) -> None:
    """Send, count, draw."""
    from ottla.validate.scratch import scratch_folder
    from ottla.validate.session import close_session, open_session

    parser = argparse.ArgumentParser(prog="python -m benchmarks.examples.web_events", description=__doc__.partition("\n")[0])
    parser.add_argument("--bootstrap", default="127.0.0.1:9092")
    parser.add_argument("--events", type=int, default=20_000, help="how many more")
    parser.add_argument("--out", type=Path, default=Path("web-events"))
    asked = parser.parse_args(arguments)
    out = asked.out.absolute()
    send(asked.bootstrap, asked.events)
    with scratch_folder() as scratch:
        spark = open_session("local[2]", {}, scratch)
        views = count_per_minute(spark, asked.bootstrap, out)
        views.orderBy("minute", "page").show(10)
        draw(views, out / "views.png")
        print(f"{views.count()} rows in {out / 'views'}, drawn in {out / 'views.png'}")
        close_session(spark)


if __name__ == "__main__":
    main()
