"""The page of supported APIs, the handler table and what Apache Kafka advertises agree."""

import json
from importlib import import_module
from pathlib import Path

import pytest

from ottla.broker.handlers.docs import main, page
from ottla.broker.handlers.table import IMPLEMENTED, SERVED, handlers_of, module_of
from ottla.broker.request.listed_apis import OF_FEATURES, WITH_SUBSCRIPTION, WITHOUT_FEATURE, ListedApis
from ottla.protocol.api_keys import ApiKey
from ottla.protocol.schema.registry import ZOOKEEPER_MODE_APIS

ROOT = Path(__file__).parents[3]
RECORDED = {
    line["api_key"]: (line["min"], line["max"])
    for line in json.loads((ROOT / "tests" / "golden" / "wire" / "api-versions.json").read_text())["table"]
}


def test_the_page_in_the_repository_is_that_of_the_table() -> None:
    assert (ROOT / "docs" / "protocol-support.md").read_text(encoding="utf-8") == page(), "run: python -m ottla.broker.handlers.docs"


def test_the_page_names_every_api_that_some_broker_lists_once() -> None:
    keys = [int(line.split("|")[2]) for line in page().splitlines() if line.startswith("| ") and line.split("|")[2].strip().isdigit()]
    newer = {key for of in (WITHOUT_FEATURE, WITH_SUBSCRIPTION, *OF_FEATURES.values()) for key in of}
    assert sorted(keys) == sorted(SERVED & (IMPLEMENTED | newer))


def test_exactly_what_apache_kafka_advertises_is_advertised() -> None:
    assert IMPLEMENTED == ZOOKEEPER_MODE_APIS
    assert {int(key) for key in ZOOKEEPER_MODE_APIS} == set(RECORDED)


def test_every_implemented_api_is_advertised_with_apache_kafkas_range() -> None:
    listed = ListedApis(SERVED).versions
    assert {int(key): tuple(versions) for key, versions in listed.items()} == RECORDED
    assert list(listed) == sorted(listed)


@pytest.mark.parametrize("key", sorted(SERVED), ids=lambda key: key.name)
def test_every_implemented_api_has_its_handler(key: ApiKey) -> None:
    of_messages, of_frames = handlers_of(key)
    name = key.name.lower()
    if of_messages is not None:
        assert of_messages.__name__ == f"handle_{name}"
    else:
        assert of_frames is not None
        assert of_frames.__name__ == f"handle_{name}_frame"
    docstring = import_module(module_of(key)).__doc__
    assert docstring is not None
    assert f"(api {int(key)}), version" in docstring


def test_the_page_is_written_where_it_is_asked_for(tmp_path: Path) -> None:
    main([str(tmp_path / "docs" / "page.md")])
    assert (tmp_path / "docs" / "page.md").read_text(encoding="utf-8") == page()
