"""Measures produce validation per batch: `python -m benchmarks.paths.validation`.

Prints µs per batch for validation of several shapes, beside two baselines of the same run: passing the batch through, and the
unavoidable checksum alone. Absolute figures differ between machines; compare within one run.
"""

import sys
import timeit
from collections.abc import Callable
from functools import partial

from ottla.protocol.records.batch import crc_is_valid, parse_header
from ottla.protocol.records.builder import build_batch
from ottla.protocol.records.compression import CODEC_BY_NAME
from ottla.protocol.records.reader import Record, check_records, parse_records, record_data, record_pieces
from ottla.protocol.topic_partition import TopicPartition
from ottla.storage.validation.batch import FIRST_VERSION_WITH_ZSTD, judge, read_only_batch
from ottla.storage.validation.rules import ValidationRules
from ottla.storage.validation.run import BatchRun

FIRST_TIMESTAMP = 1_700_000_000_000
REPEAT = 7


def batch_of(records: int, value_bytes: int, codec: str = "none") -> memoryview:
    """A batch with values that compress about as well as log lines."""
    values = [(b"%d user=%d path=/orders/%d status=200 " % (i, i * 7919, i * 104729)) * 40 for i in range(records)]
    made = [Record(i, FIRST_TIMESTAMP + i, b"key-%d" % i, value[:value_bytes]) for i, value in enumerate(values)]
    return memoryview(build_batch(made, CODEC_BY_NAME[codec]))


SHAPES = {
    "1 record of 100 B": batch_of(1, 100),
    "4 records of 100 B": batch_of(4, 100),
    "5 records of 100 B": batch_of(5, 100),
    "16 KiB, 150 records, plain": batch_of(150, 96),
    "16 KiB uncompressed, 150 records, lz4": batch_of(150, 96, "lz4"),
    "16 KiB uncompressed, 150 records, zstd": batch_of(150, 96, "zstd"),
    "16 KiB uncompressed, 150 records, gzip": batch_of(150, 96, "gzip"),
    "1 MB, 1000 records, plain": batch_of(1000, 1000),
}


def microseconds(work: Callable[[], object]) -> float:
    """The minimum of several runs, each long enough for the clock."""
    number = max(1, int(0.02 / max(timeit.timeit(work, number=3) / 3, 1e-7)))
    return min(timeit.repeat(work, number=number, repeat=REPEAT)) / number * 1e6


def passed_through(records: memoryview) -> memoryview:
    return records


def check(run: BatchRun) -> None:
    run.point_at(0, len(run.frame))
    read_only_batch(run, FIRST_VERSION_WITH_ZSTD)


def validate(run: BatchRun, rules: ValidationRules) -> None:
    check(run)
    judge(run, rules, FIRST_TIMESTAMP, True)


def append(run: BatchRun, rules: ValidationRules) -> None:
    validate(run, rules)
    run.stamp(0, 5)


def walk(records: memoryview) -> None:
    header = parse_header(records)
    check_records(record_pieces(records, 0, header), header)


def iterate(records: memoryview) -> None:
    header = parse_header(records)
    list(parse_records(record_data(records, 0, header), header))


def main() -> int:
    plain = ValidationRules(TopicPartition("orders", 0))
    compacted = ValidationRules(TopicPartition("orders", 0), compact=True)
    columns = ("pass", "crc", "check", "validate", "+stamp", "walk", "iterate", "compacted")
    print(f"{'µs per batch':<42}{'bytes':>9}" + "".join(f"{name:>11}" for name in columns))
    for name, records in SHAPES.items():
        run = BatchRun(records)
        works: list[Callable[[], object]] = [
            partial(passed_through, records),
            partial(crc_is_valid, records),
            partial(check, run),
            partial(validate, run, plain),
            partial(append, run, plain),
            partial(walk, records),
            partial(iterate, records),
            partial(validate, run, compacted),
        ]
        print(f"{name:<42}{len(records):>9}" + "".join(f"{microseconds(work):>11.2f}" for work in works))
    return 0


if __name__ == "__main__":
    sys.exit(main())
