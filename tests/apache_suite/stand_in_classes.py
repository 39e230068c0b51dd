"""Compiles the stand-ins for Apache Kafka's server, once for each state of their sources.

The tests of 3.9 create their servers in two classes. Their sources come from the published archive of the tests' sources, are changed in
one place each, and are compiled with the sources in `stand_in`. The tests of 4 get their cluster from one class, which `stand_in_4`
replaces. The results are in folders below the jars, and come before them in the class path.
"""

import os
import re
import subprocess
import tempfile
import zipfile
from hashlib import blake2b
from pathlib import Path

SOURCES = Path(__file__).with_name("stand_in")
SOURCES_4 = Path(__file__).with_name("stand_in_4")
_ARCHIVE = "kafka_2.13-*-test-sources.jar"
_CREATORS = ("unit/kafka/utils/TestUtils.scala", "integration/kafka/server/QuorumTestHarness.scala")
"""The sources of the classes that create a server, once each."""
_CREATION = re.compile(r"new KafkaServer\((\w+), (\w+), \w+, (?:\w+ = )?(\w+)\)")
_OF_OTTLA = r"(new OttlaServer(\1, \2, \3): KafkaServer)"
_SERVICE = "META-INF/services/org.junit.jupiter.api.extension.Extension"
_EXTENSION = "ottla.suite.OnlyOttla"
_COMPILERS = {"scala": ["-Xmx1g", "-cp", "{jars}", "scala.tools.nsc.Main"], "java": ["-m", "jdk.compiler/com.sun.tools.javac.Main"]}
_SECONDS = 600


def stand_in(libs: Path) -> tuple[Path, Path]:
    """The folders with the classes of the extension of JUnit, and of the server. Raises AssertionError with the compiler's output."""
    sources = [Path(__file__), *sorted(SOURCES.iterdir())]
    digest = blake2b(b"".join(source.read_bytes() for source in sources), digest_size=8).hexdigest()
    folder = libs / "stand-in" / digest
    if not folder.exists():
        folder.parent.mkdir(exist_ok=True)
        with tempfile.TemporaryDirectory(dir=folder.parent) as scratch:
            made = Path(scratch, "made")
            made.mkdir()
            _compile("java", libs, made / "extension", sorted(SOURCES.glob("*.java")))
            service = made / "extension" / _SERVICE
            service.parent.mkdir(parents=True)
            service.write_text(_EXTENSION, encoding="utf-8")
            _compile("scala", libs, made / "server", [*sorted(SOURCES.glob("*.scala")), *_changed(libs, Path(scratch))])
            if not folder.exists():  # another process may have been faster
                made.rename(folder)
    return folder / "extension", folder / "server"


def stand_in_4(libs: Path) -> Path:
    """The folder with the classes for tests of Apache Kafka 4. Raises AssertionError with the compiler's output."""
    sources = sorted(SOURCES_4.iterdir())
    digest = blake2b(b"".join(source.read_bytes() for source in sources), digest_size=8).hexdigest()
    folder = libs / "stand-in" / digest
    if not folder.exists():
        folder.parent.mkdir(exist_ok=True)
        with tempfile.TemporaryDirectory(dir=folder.parent) as scratch:
            made = Path(scratch, "made")
            _compile("java", libs, made, sources)
            if not folder.exists():  # another process may have been faster
                made.rename(folder)
    return folder


def _changed(libs: Path, scratch: Path) -> list[Path]:
    (archive,) = libs.glob(_ARCHIVE)
    found = []
    with zipfile.ZipFile(archive) as sources:
        for name in _CREATORS:
            text, count = _CREATION.subn(_OF_OTTLA, sources.read(name).decode())
            assert count == 1, f"{name} of {archive.name} creates its servers in another way"
            found.append(scratch / Path(name).name)
            found[-1].write_text(text, encoding="utf-8")
    return found


def _compile(language: str, libs: Path, to: Path, sources: list[Path]) -> None:
    to.mkdir()
    jars = os.pathsep.join(map(str, sorted(libs.glob("*.jar"))))
    compiler = [word.format(jars=jars) for word in _COMPILERS[language]]
    command = ["java", "-XX:+UseSerialGC", *compiler, "-nowarn", "-cp", jars, "-d", str(to), *map(str, sources)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=_SECONDS, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
