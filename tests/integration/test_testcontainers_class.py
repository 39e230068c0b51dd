"""The class for testcontainers-python in the page of pytest-ottla, without testcontainers and without a container engine."""

import re
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from tests.support.serve_command import serving

ROOT = Path(__file__).parents[2]


class Container:
    """The calls of testcontainers' DockerContainer that the class uses."""

    def __init__(self, image: str) -> None:
        self.image = image
        self.env: dict[str, str] = {}
        self.ports: dict[int, int] = {}
        self.ready = ""

    def with_env(self, key: str, value: str) -> None:
        self.env[key] = value

    def with_bind_ports(self, container: int, host: int) -> None:
        self.ports[container] = host

    def waiting_for(self, strategy: str) -> None:
        self.ready = strategy


@pytest.fixture
def documented(monkeypatch: pytest.MonkeyPatch) -> Any:
    """The class of the page."""
    modules = {"container": {"DockerContainer": Container}, "wait_strategies": {"LogMessageWaitStrategy": str}}
    for name in ("testcontainers", "testcontainers.core"):
        monkeypatch.setitem(sys.modules, name, ModuleType(name))
    for name, content in modules.items():
        module = ModuleType(f"testcontainers.core.{name}")
        module.__dict__.update(content)
        monkeypatch.setitem(sys.modules, module.__name__, module)
    page = (ROOT / "pytest-ottla" / "README.md").read_text(encoding="utf-8")
    (code,) = (block for block in re.findall(r"```python\n(.*?)```", page, re.DOTALL) if "testcontainers" in block)
    namespace: dict[str, Any] = {}
    exec(code, namespace)
    return namespace["OttlaContainer"]


def test_its_settings_start_a_broker_of_the_image_at_the_port_of_the_host(documented: Any, tmp_path: Path) -> None:
    container = documented(num_partitions=3)
    assert container.image == "ottla"
    (port,) = container.ports.values()
    assert container.bootstrap_servers == f"localhost:{port}"
    # What the Dockerfile sets, but with the port of the host, to which an engine leads 9092.
    of_image = dict(re.findall(r"(KAFKA_[A-Z_]+)=(\S+)", (ROOT / "Dockerfile").read_text(encoding="utf-8").partition("ENV")[2]))
    assert of_image["KAFKA_LISTENERS"] == f"PLAINTEXT://:{next(iter(container.ports))}"
    here = {
        "KAFKA_LISTENERS": f"PLAINTEXT://127.0.0.1:{port}",
        "KAFKA_LOG_DIRS": str(tmp_path / "logs"),
        "KAFKA_OTTLA_METRICS_LISTENER": "127.0.0.1:0",
    }
    assert set(here) == set(of_image)
    with serving(tmp_path, environment={**here, **container.env}) as broker:
        assert container.ready in broker.line.strip()
        assert broker.line.strip().endswith(f"PLAINTEXT://localhost:{port}")
