"""What a copier of `ottla validate --exactly-once` makes of a row."""

from __future__ import annotations

import zlib
from dataclasses import replace
from pathlib import Path

import pytest

from ottla.validate.copying.rows import copied
from ottla.validate.plan import Copies, Plan

MARK = b"cafe0001"


def row(run: bytes, key: bytes | None, payload: bytes) -> bytes:
    head = run + b"|000003|000000312345|1700000000000"
    return b"%s|%08x|%s" % (head, zlib.crc32(head + (key or b"") + b"|" + payload), payload)


@pytest.mark.parametrize("key", [b"u-7", None])
@pytest.mark.parametrize("payload", [b"", b"x", b"0123|\n\xff"])
def test_a_copy_has_another_mark_the_payload_reversed_and_a_checksum_that_fits(key: bytes | None, payload: bytes) -> None:
    assert copied(key, row(b"00000001", key, payload), MARK) == row(MARK, key, payload[::-1])


@pytest.mark.parametrize(
    "value", [None, b"", b"of yore", row(b"00000001", b"k", b"payload")[:-1], row(b"00000001", b"another", b"payload")]
)
def test_a_value_whose_checksum_is_wrong_stays_as_it_is(value: bytes | None) -> None:
    assert copied(b"k", value, MARK) == value


def test_rows_copies_and_aborted_copies_have_marks_of_their_own() -> None:
    plain = Plan("nowhere", "orders", 100, Path("report"))
    plan = replace(plain, copies=Copies())
    assert plain.output is plain
    assert plan.output.topic == "orders-copied"
    assert plan.topics == ["orders", "orders-copied"]
    assert plan.output.output == plan.output
    marks = {plan.run, plan.output.run, plan.aborted_run}
    assert len(marks) == 3
    assert {len(mark) for mark in marks} == {8}
    assert plan.output.aborted_run == plan.aborted_run
