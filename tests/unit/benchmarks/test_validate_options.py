"""`ottla validate` refuses options that cannot be meant, with status 2 and a line that names the option, before anything is begun."""

from __future__ import annotations

import pytest
from click.testing import CliRunner

from ottla.cli.validate import validate
from ottla.validate import run
from ottla.validate.plan import Copies, Plan


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
        ("--copiers", "0", "0 is not in the range"),
        ("--transaction-rows", "0", "0 is not in the range"),
        ("--aborts", "91", "91 is not in the range"),
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


@pytest.mark.parametrize(
    ("arguments", "why"),
    [
        (["--copiers", "2"], "--copiers needs --exactly-once."),
        (["--transaction-rows", "10"], "--transaction-rows needs --exactly-once."),
        (["--aborts", "0"], "--aborts needs --exactly-once."),
        (["--copier-faults"], "--copier-faults needs --exactly-once."),
        (["--exactly-once", "--verify-only", "--topic", "orders"], "--exactly-once is for runs that write."),
    ],
)
def test_options_that_do_not_go_together(arguments: list[str], why: str, monkeypatch: pytest.MonkeyPatch) -> None:
    begun: list[object] = []
    monkeypatch.setattr(run, "run", begun.append)
    ended = CliRunner().invoke(validate, arguments)
    assert ended.exit_code == 2
    assert ended.output.splitlines()[-1] == f"Error: {why}"
    assert not begun


def test_chaos_is_also_for_the_copiers(monkeypatch: pytest.MonkeyPatch) -> None:
    begun: list[Plan] = []
    monkeypatch.setattr(run, "run", lambda plan: begun.append(plan) or 0)
    for arguments in (["--aborts", "0"], ["--copier-faults"], ["--chaos", "cluster"]):
        assert CliRunner().invoke(validate, ["--exactly-once", "--copiers", "7", *arguments]).exit_code == 0
    assert [plan.copies for plan in begun] == [
        Copies(copiers=7, aborted_percent=0),
        Copies(copiers=7, faults=True),
        Copies(copiers=7, faults=True),
    ]


def test_the_command_in_the_report_has_no_secret() -> None:
    settings = ["--producer", "linger.ms=5", "--producer", "ssl.key.password=key-secret", "--spark-conf=spark.hadoop.fs.s3a.secret.key=a=b"]
    hidden = "--producer 'ssl.key.password=[hidden]' '--spark-conf=spark.hadoop.fs.s3a.secret.key=[hidden]'"
    assert run.command_line(["validate", "--rows", "5", *settings]) == f"ottla validate --rows 5 --producer linger.ms=5 {hidden}"
