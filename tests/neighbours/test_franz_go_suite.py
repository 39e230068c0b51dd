"""franz-go's own tests with a broker: groups of both protocols, transactions, and share groups."""

from __future__ import annotations

import os
import re
import subprocess
from pathlib import Path

import pytest

from tests.support.broker_process import a_broker
from tests.support.go_programs import compiled_tests, needs_go
from tests.support.neighbours.artifacts import whole

pytestmark = [needs_go, whole, pytest.mark.slow, pytest.mark.timeout(1800)]

RECORDS = 20_000
"""Of each chain of consumers that copy topics to each other; 500,000 is the default."""
CHOSEN = "TestGroupETL|TestTxnEtl|TestShareGroup|TestGroupSimple|TestIssue|TestConsumeRegex|TestPause|TestAddRemove|TestDirect"
EXPECTED = {
    "TestGroupETL/range/848",
    "TestGroupETL/sticky/848",
    "TestGroupETL/sticky/848/static",
    "TestGroupETL/cooperative-sticky",
    "TestTxnEtl/range/848",
    "TestTxnEtl/sticky/848",
    "TestTxnEtl/cooperative-sticky",
    "TestShareGroupETL",
    "TestShareGroupAckOnClose",
    "TestShareGroupOffsetsAdmin",
}
"""Tests that franz-go would leave out if the broker did not list the protocols."""


def test_the_tests_of_franz_go_pass(tmp_path: Path) -> None:
    program = compiled_tests("members", "github.com/twmb/franz-go/pkg/kgo", tmp_path)
    intervals = {"group_consumer_heartbeat_interval_ms": 1_000, "group_consumer_min_heartbeat_interval_ms": 1_000}
    with a_broker(tmp_path / "broker", auto_create_topics_enable="true", group_initial_rebalance_delay_ms=0, **intervals) as broker:
        given = {"KGO_SEEDS": broker.bootstrap, "KGO_TEST_RF": "1", "KGO_TEST_RECORDS": str(RECORDS), "KGO_LOG_LEVEL": "none"}
        command = [str(program), "-test.v", "-test.timeout", "25m", "-test.run", CHOSEN]
        done = subprocess.run(command, env=os.environ | given, capture_output=True, text=True, timeout=1700, check=False)
    failed = re.findall(r"--- FAIL: (\S+)", done.stdout)
    assert (done.returncode, failed) == (0, []), done.stdout[-3000:]
    assert set(re.findall(r"--- PASS: (\S+)", done.stdout)) >= EXPECTED
