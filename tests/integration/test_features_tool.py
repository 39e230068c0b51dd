"""kafka-features.sh of Apache Kafka 4.4 works with Ottla. The feature is made up, so the broker runs in the process of the test."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from ottla.protocol import features
from tests.support.apache_kafka_4 import needs_apache_kafka_4, run_tool_4
from tests.support.in_process_broker import InProcessBroker, a_broker_in_process

pytestmark = [*needs_apache_kafka_4, pytest.mark.slow]


@pytest.fixture
def broker(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[InProcessBroker]:
    monkeypatch.setattr(features, "IMPLEMENTED", {"made.up": 2})
    with a_broker_in_process(tmp_path) as running:
        yield running


def said(broker: InProcessBroker, *arguments: str) -> tuple[int, list[str]]:
    """Status and output of the tool."""
    ended = run_tool_4("org.apache.kafka.tools.FeatureCommand", "--bootstrap-server", broker.bootstrap, *arguments)
    return ended.returncode, [" ".join(line.split()) for line in ended.stdout.strip().splitlines()]


def test_the_tool_describes_raises_and_lowers(broker: InProcessBroker) -> None:
    described = "Feature: made.up SupportedMinVersion: 1 SupportedMaxVersion: 2 FinalizedVersionLevel: {} Epoch: {}"
    assert said(broker, "describe") == (0, [described.format(2, 0)])
    assert said(broker, "downgrade", "--feature", "made.up=1", "--dry-run") == (0, ["made.up can be downgraded to 1."])
    assert said(broker, "downgrade", "--feature", "made.up=1") == (0, ["made.up was downgraded to 1."])
    assert said(broker, "upgrade", "--feature", "made.up=2") == (0, ["made.up was upgraded to 2."])
    assert said(broker, "disable", "--feature", "made.up") == (0, ["made.up was disabled."])
    assert said(broker, "describe") == (0, [described.format(0, 3)])
    refused = "Could not upgrade made.up to 3. The update failed for all features since the following feature had an error: "
    reason = "Invalid update version 3 for feature made.up. Local controller 1001 only supports versions 0-2"
    assert said(broker, "upgrade", "--feature", "made.up=3") == (1, [refused + reason])


def test_a_release_is_refused_because_metadata_version_is_not_supported(broker: InProcessBroker) -> None:
    status, lines = said(broker, "upgrade", "--release-version", "4.0-IV3")
    assert status == 1
    assert any("Local controller 1001 does not support this feature." in line for line in lines), lines
