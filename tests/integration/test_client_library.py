"""The examples of the client library in docs/first-steps.md, in their order, and the names of the library."""

import re
import subprocess
import sys
import typing
from collections.abc import Iterator
from pathlib import Path

import pytest

import ottla.client
from tests.support.broker_process import BrokerProcess, a_broker

PAGE = (Path(__file__).parents[2] / "docs" / "first-steps.md").read_text(encoding="utf-8")
SECTION = re.split(r"^## ", PAGE.partition("\n## The client library\n")[2], maxsplit=1, flags=re.MULTILINE)[0]
EXAMPLES = re.findall(r"^```python\n(.*?)^```$", SECTION, flags=re.MULTILINE | re.DOTALL)
SAID = (
    "",
    r"invoices-0 \d+ None\n",
    r"(?:invoices-\d \d+ (?:None|b'customer-7') b'[^']+'\n){6}",
    r"\d records of invoices-\d\n(?:\d records of invoices-\d\n)*",
    r"\['__consumer_offsets', 'invoices'\]\n3600000 Empty\n",
    r"no broker can be reached at 127\.0\.0\.1:1: Connection refused\n",
    "",
)
"""What each example prints."""


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    with a_broker(tmp_path_factory.mktemp("library")) as broker:
        yield broker


def test_the_examples_of_the_page_print_what_they_should(broker: BrokerProcess, capfd: pytest.CaptureFixture[str]) -> None:
    assert len(EXAMPLES) == len(SAID)
    for number, (example, expected) in enumerate(zip(EXAMPLES, SAID, strict=True)):
        exec(compile(example.replace("127.0.0.1:9092", broker.bootstrap), f"example {number}", "exec"), {})
        assert re.fullmatch(expected, capfd.readouterr().out), example


def test_every_name_of_the_library_is_there_and_has_types_and_a_docstring() -> None:
    assert set(ottla.client.__all__) == set(dir(ottla.client))
    for name in ottla.client.__all__:
        found = getattr(ottla.client, name)
        assert not callable(found) or found.__doc__, name
        if isinstance(found, type(test_every_name_of_the_library_is_there_and_has_types_and_a_docstring)):
            assert "return" in typing.get_type_hints(found), name
    with pytest.raises(AttributeError, match="no attribute 'Kluster'"):
        exec("ottla.client.Kluster")


def test_the_library_imports_no_broker() -> None:
    code = (
        "import sys, ottla.client as c; [getattr(c, name) for name in c.__all__]; print([m for m in sys.modules if m.startswith('ottla.')])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    floors = {name.split(".")[1] for name in re.findall(r"'(ottla\.[\w.]+)'", done.stdout)}
    assert floors == {"client", "protocol"}
