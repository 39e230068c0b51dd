"""A configuration that cannot be used is one line and status 1, whatever is wrong with it, and nothing is written."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

NOBODY = 65534


def refused(folder: Path, *arguments: str, user: int | None = None) -> str:
    """The only line of a refused start."""
    command = [sys.executable, "-m", "ottla", "serve", *arguments]
    environment = {name: value for name, value in os.environ.items() if not name.startswith("KAFKA_")}
    environment["PYTHONPATH"] = str(Path(__file__).parents[2])
    done = subprocess.run(command, cwd=folder, env=environment, user=user, capture_output=True, text=True, timeout=60, check=False)
    assert (done.returncode, done.stdout) == (1, ""), done
    (line,) = done.stderr.splitlines()
    assert line.startswith("ottla: ")
    assert not (folder / "data").exists()
    return line


@pytest.mark.parametrize(
    ("content", "line"),
    [
        ("num.partitions=many\n", "ottla: Invalid value many for configuration num.partitions: Not a number of type INT"),
        (
            "num.partitions=3\\nottla is ready\n",
            "ottla: Invalid value 3\\nottla is ready for configuration num.partitions: Not a number of type INT",
        ),
        (
            "listeners=SSL://127.0.0.1:0\nsecurity.inter.broker.protocol=SSL\nssl.enabled.protocols=a\\nb\nlog.dirs=data\n",
            "ottla: listener SSL: ssl.enabled.protocols: a\\nb is not supported; use TLSv1.2 and TLSv1.3",
        ),
        (
            "config.providers=vault\nconfig.providers.vault.class=com.example.Vault\nnum.partitions=${vault:n}\n",
            "ottla: Invalid value com.example.Vault for configuration config.providers.vault.class: "
            "Could not load config provider class or one of its dependencies",
        ),
        ("broker.id=\\u12\n", "ottla: server.properties: Malformed \\uxxxx encoding in the property that begins in line 1: broker.id"),
    ],
)
def test_a_file_with_an_error(tmp_path: Path, content: str, line: str) -> None:
    (tmp_path / "server.properties").write_text(content)
    assert refused(tmp_path, "server.properties") == line


def test_a_file_that_is_not_there_or_is_none(tmp_path: Path) -> None:
    assert refused(tmp_path, "missing.properties") == "ottla: missing.properties cannot be read: No such file or directory"
    assert refused(tmp_path, ".") == "ottla: . cannot be read: Is a directory"


def test_a_file_that_may_not_be_read(tmp_path: Path) -> None:
    file = tmp_path / "server.properties"
    file.write_text("broker.id=1\n")
    file.chmod(0)
    for folder in (tmp_path, *tmp_path.parents[:2]):  # pytest's own, which no other user can look into
        folder.chmod(0o711)
    line = refused(tmp_path, str(file), user=NOBODY if os.getuid() == 0 else None)
    assert line == f"ottla: {file} cannot be read: Permission denied"


def test_an_assignment_without_a_key(tmp_path: Path) -> None:
    assert refused(tmp_path, "--set", "broker.id") == "ottla: 'broker.id' is not of the form key=value"


def test_a_listener_without_one_between_brokers(tmp_path: Path) -> None:
    line = refused(tmp_path, "--set", "listeners=SSL://127.0.0.1:0")
    assert line.endswith("; security.inter.broker.protocol is PLAINTEXT: add a listener PLAINTEXT, or set one of both keys")


@pytest.mark.parametrize(
    ("settings", "complaint"),
    [
        (
            ("zookeeper.set.acl=true",),
            "ottla: zookeeper.set.acl=true: znodes can only be protected by a broker that authenticates itself: set",
        ),
        (
            ("zookeeper.ssl.client.enable=true", "zookeeper.ssl.keystore.location=/no/such.p12", "zookeeper.ssl.keystore.password=x"),
            "ottla: zookeeper.ssl.client.enable=true: zookeeper.ssl.keystore.location=/no/such.p12: No such file",
        ),
        (
            (
                "authorizer.class.name=kafka.security.authorizer.AclAuthorizer",
                "authorizer.zookeeper.ssl.client.enable=true",
                "authorizer.zookeeper.ssl.truststore.location=/no/such.pem",
            ),
            "zookeeper.ssl.truststore.location=/no/such.pem: No such file",
        ),
        (
            ("ottla.jaas.file=/no/such.jaas",),
            "ottla: Invalid value /no/such.jaas for configuration ottla.jaas.file: cannot be read: No such",
        ),
    ],
)
def test_a_login_at_zookeeper_that_cannot_be(tmp_path: Path, settings: tuple[str, ...], complaint: str) -> None:
    arguments = [part for setting in ("zookeeper.connect=127.0.0.1:1", *settings) for part in ("--set", setting)]
    assert complaint in refused(tmp_path, *arguments)


def test_a_broker_for_tests_leaves_no_directory_behind(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    assert "num.partitions" in refused(tmp_path, "--ephemeral", "--set", "num.partitions=many")
    assert list(tmp_path.iterdir()) == []
