"""Runs the schema registry Apicurio, which keeps its schemas in topics of the broker (KafkaSQL), and speaks Confluent's interface.

It needs Java 21, which need not be the `java` on the PATH: the newest below `/usr/lib/jvm` is taken.
"""

from __future__ import annotations

import http.client
import json
import re
import signal
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import pytest

from tests.support.apache_kafka.java import QUICK_OPTIONS, JavaServer
from tests.support.apache_kafka.ports import free_ports
from tests.support.neighbours.artifacts import REGISTRY

_START_SECONDS = 120.0
_ASK_SECONDS = 30.0
_OLDEST_JAVA = 21
_API = "/apis/ccompat/v7"
_JSON = {"Content-Type": "application/vnd.schemaregistry.v1+json"}


def _java() -> Path | None:
    """The newest Java of this machine; None if that is too old."""
    found = {}
    for release in Path("/usr/lib/jvm").glob("*/release"):
        version = re.search(r'JAVA_VERSION="(\d+)', release.read_text(encoding="utf-8"))
        if version is not None:
            found[int(version[1])] = release.parent / "bin" / "java"
    newest = max(found, default=0)
    return found[newest] if newest >= _OLDEST_JAVA else None


needs_its_java = pytest.mark.skipif(_java() is None, reason=f"no Java {_OLDEST_JAVA} in /usr/lib/jvm")
"""Marks tests that run the registry."""


def _program() -> Path:
    """The jar to run, unpacked from the archive once. Skips the test if Maven cannot fetch it."""
    libs = REGISTRY.jars()
    unpacked = libs / "unpacked"
    if not unpacked.exists():
        (archive,) = libs.glob("*.tar.gz")
        with tempfile.TemporaryDirectory(prefix="unpacking-", dir=libs) as scratch:
            new = Path(scratch) / "unpacked"
            new.mkdir()
            subprocess.run(["tar", "-xzf", str(archive), "-C", str(new)], check=True)
            with suppress(OSError):  # another process was faster
                new.rename(unpacked)
    return unpacked / "quarkus-run.jar"


class Registry:
    """The process; it keeps its port over restarts, and nothing else outside of the broker."""

    def __init__(self, bootstrap: str, directory: Path) -> None:
        (self.port,) = free_ports(1)
        options = {
            "quarkus.http.host": "127.0.0.1",
            "quarkus.http.port": str(self.port),
            "apicurio.storage.kind": "kafkasql",
            "apicurio.kafkasql.bootstrap.servers": bootstrap,
            "apicurio.kafkasql.consumer.poll.timeout": "100",  # it starts only after several polls that find nothing
            "java.io.tmpdir": str(directory),
        }
        settings = [f"-D{name}={value}" for name, value in options.items()]
        self._command = [str(_java()), "-Xmx512m", *QUICK_OPTIONS, *settings, "-jar", str(_program())]
        self._process = JavaServer("the schema registry", directory / "registry.log")

    @property
    def url(self) -> str:
        """For clients of Confluent's interface."""
        return f"http://127.0.0.1:{self.port}{_API}"

    def start(self) -> None:
        """Returns when it has read its topics and answers."""
        self._process.launch(self._command)
        self._process.wait_until(lambda: self._tried("GET", "/subjects")[0] == http.client.OK, _START_SECONDS)

    def kill(self) -> None:
        """SIGKILL."""
        self._process.end(signal.SIGKILL)

    def said(self) -> str:
        """The log of its last run."""
        return self._process.said()

    def register(self, subject: str, schema: object) -> int:
        """The id of the schema, which is new or known."""
        status, answer = self._tried("POST", f"/subjects/{subject}/versions", {"schema": json.dumps(schema)})
        assert status == http.client.OK, (status, answer)
        return int(answer["id"])

    def versions(self, subject: str) -> list[int]:
        """Of a subject."""
        status, answer = self._tried("GET", f"/subjects/{subject}/versions")
        assert status == http.client.OK, (status, answer)
        return [int(each) for each in answer]

    def refuses(self, subject: str, schema: object) -> bool:
        """Whether the schema is not compatible with the versions of the subject, and is refused."""
        return self._tried("POST", f"/subjects/{subject}/versions", {"schema": json.dumps(schema)})[0] == http.client.CONFLICT

    def require_compatibility(self, subject: str, level: str) -> None:
        """From now on new versions of the subject must be compatible."""
        status, answer = self._tried("PUT", f"/config/{subject}", {"compatibility": level})
        assert status == http.client.OK, (status, answer)

    def _tried(self, method: str, path: str, body: object = None) -> tuple[int, Any]:
        """Status and document of an answer; 0 and the reason while the registry does not answer."""
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=_ASK_SECONDS)
        try:
            connection.request(method, f"{_API}{path}", None if body is None else json.dumps(body), _JSON)
            answer = connection.getresponse()
            return answer.status, json.loads(answer.read() or b"null")
        except (OSError, http.client.HTTPException, ValueError) as error:
            return 0, error
        finally:
            connection.close()


@contextmanager
def a_registry(bootstrap: str, directory: Path) -> Iterator[Registry]:
    """A running registry."""
    directory.mkdir()
    registry = Registry(bootstrap, directory)
    try:
        registry.start()
        yield registry
    except BaseException:
        print(f"--- the schema registry\n{registry.said()[-6_000:]}")
        raise
    finally:
        registry.kill()
