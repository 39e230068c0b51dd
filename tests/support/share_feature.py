"""Turns share groups on for brokers in the test's own process, before a release has the feature."""

from __future__ import annotations

import pytest

from ottla.broker.request import listed_apis
from ottla.protocol import features
from ottla.protocol.api_keys import ApiKey

APIS = {
    ApiKey.SHARE_GROUP_HEARTBEAT: 1,
    ApiKey.SHARE_GROUP_DESCRIBE: 1,
    ApiKey.SHARE_FETCH: 2,
    ApiKey.SHARE_ACKNOWLEDGE: 2,
    ApiKey.INITIALIZE_SHARE_GROUP_STATE: 0,
    ApiKey.READ_SHARE_GROUP_STATE: 0,
    ApiKey.WRITE_SHARE_GROUP_STATE: 1,
    ApiKey.DELETE_SHARE_GROUP_STATE: 0,
    ApiKey.READ_SHARE_GROUP_STATE_SUMMARY: 1,
}


def turn_on_share_groups(monkeypatch: pytest.MonkeyPatch) -> None:
    """A new cluster has `share.version` 1, with the APIs that exist so far."""
    monkeypatch.setattr(features, "IMPLEMENTED", dict(features.IMPLEMENTED) | {features.SHARE_VERSION: 1})
    monkeypatch.setattr(listed_apis, "OF_FEATURES", dict(listed_apis.OF_FEATURES) | {(features.SHARE_VERSION, 1): APIS})
