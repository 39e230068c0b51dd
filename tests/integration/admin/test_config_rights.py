"""A client without rights learns nothing of a broker's files, environment and configuration from AlterConfigs and its successor."""

import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.support.admin_requests import BROKER, SET, alter, change
from tests.support.in_process_broker import InProcessBroker, a_broker_in_process
from tests.support.wire_client import WireClient, a_wire_client

REFUSED = ("CLUSTER_AUTHORIZATION_FAILED", None)
CLASSES = {"env": "EnvVarConfigProvider", "file": "FileConfigProvider", "directory": "DirectoryConfigProvider"}
PROVIDERS = {"config.providers": ",".join(CLASSES)} | {
    f"config.providers.{name}.class": f"org.apache.kafka.common.config.provider.{each}" for name, each in CLASSES.items()
}
ALTER: dict[str, Callable[..., tuple[str, str | None]]] = {
    "AlterConfigs": alter,
    "IncrementalAlterConfigs": lambda client, kind, name, configs, **options: change(
        client, kind, name, *((key, SET, text) for key, text in configs.items()), **options
    ),
}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    found = tmp_path_factory.mktemp("of-the-operator")
    (found / "hidden").write_text("hidden=of-a-file-secret\n")
    os.mkfifo(found / "pipe")
    return found


@pytest.fixture(scope="module", params=[{}, PROVIDERS], ids=["without providers", "with the same providers"])
def broker(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[InProcessBroker]:
    with pytest.MonkeyPatch.context() as patches:
        patches.setenv("OTTLA_HIDDEN", "of-the-environment-secret")
        config: dict[str, Any] = {"broker_id": 0, "authorizer_class_name": "kafka.security.authorizer.AclAuthorizer", **request.param}
        with a_broker_in_process(tmp_path_factory.mktemp("data"), **config) as running:
            yield running


@pytest.fixture(scope="module")
def client(broker: InProcessBroker) -> Iterator[WireClient]:
    with a_wire_client(broker.port) as connected:
        yield connected


@pytest.mark.parametrize("is_dry", [True, False], ids=["validated", "changed"])
@pytest.mark.parametrize("name", ["0", ""], ids=["the broker", "the default"])
@pytest.mark.parametrize("api", ALTER)
@pytest.mark.parametrize(
    "value",
    ["none", "1000", "${env:OTTLA_HIDDEN}", "${env:NONE}", "${file:DIR/hidden:hidden}", "${file:DIR/pipe:x}", "${directory:DIR:hidden}"],
)
def test_a_client_without_rights_hears_no_value(client: WireClient, folder: Path, value: str, api: str, name: str, is_dry: bool) -> None:
    configs = {**PROVIDERS, "num.io.threads": value.replace("DIR", str(folder))}
    assert ALTER[api](client, BROKER, name, configs, validate_only=is_dry) == REFUSED


@pytest.mark.parametrize("api", ALTER)
def test_a_client_without_rights_hears_what_is_wrong_with_the_request_itself(client: WireClient, api: str) -> None:
    assert ALTER[api](client, BROKER, "5", {}) == ("INVALID_REQUEST", "Unexpected broker id, expected 0, but received 5")
