"""`ottla validate` refuses options that cannot be meant, with status 2 and a line that names the option, before anything is begun."""

from __future__ import annotations

import pytest
from click.testing import CliRunner

from benchmarks.pipeline import run
from benchmarks.pipeline.__main__ import validate


@pytest.mark.parametrize(
    ("option", "value", "why"),
    [
        ("--rows", "0", "0 is not in the range"),
        ("--rows", "-1", "-1 is not in the range"),
        ("--rows", "99999999999999999999", "is not in the range"),
        ("--partitions", "0", "0 is not in the range"),
        ("--partitions", "2147483648", "is not in the range"),
        ("--replication-factor", "32768", "is not in the range"),
        ("--record-bytes", "63", "63 is not in the range"),
        ("--codec", "rar", "'rar' is not one of"),
        ("--acks", "2", "'2' is not one of"),
        ("--mode", "both", "'both' is not one of"),
        ("--seed", "-1", "-1 is not in the range"),
        ("--keys", "0", "0 is not in the range"),
        ("--max-offsets-per-trigger", "9223372036854775808", "is not in the range"),
        ("--stall", "0", "0.0 is not in the range"),
        ("--stall", "nan", "nan is not a finite number"),
        ("--stall", "inf", "inf is not a finite number"),
        ("--topic", "", "is empty"),
        ("--report", "", "is empty"),
        ("--input", "", "is empty"),
        ("--key-column", "", "is empty"),
        ("--work", "", "is empty"),
        ("--chaos", "", "is empty"),
        ("--producer", "linger.ms", "'linger.ms' is not name=value"),
        ("--producer", "acks=0", "acks: say it with --acks"),
        ("--producer", "bootstrap.servers=other:9092", "bootstrap.servers: say it with --bootstrap"),
        ("--producer", "transactional.id=x", "transactional.id: Spark's sink begins no transactions"),
        ("--producer", "value.serializer=x", "value.serializer: Spark's sink has its own"),
        ("--spark-conf", "=1", "'=1' is not name=value"),
    ],
)
def test_an_option_that_cannot_be_meant(option: str, value: str, why: str, monkeypatch: pytest.MonkeyPatch) -> None:
    begun: list[object] = []
    monkeypatch.setattr(run, "run", begun.append)
    ended = CliRunner().invoke(validate, [option, value])
    assert ended.exit_code == 2
    assert ended.output.splitlines()[-1].startswith(f"Error: Invalid value for '{option}': ")
    assert why in ended.output.splitlines()[-1]
    assert not begun
