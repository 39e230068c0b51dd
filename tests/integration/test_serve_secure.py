"""`ottla serve --secure`: its users reach it by kcat and confluent-kafka with the files that it makes, strangers do not."""

from __future__ import annotations

import stat
import subprocess
from pathlib import Path

import confluent_kafka
import pytest
from confluent_kafka.admin import (
    AclBinding,
    AclBindingFilter,
    AclOperation,
    AclPermissionType,
    AdminClient,
    ResourcePatternType,
    ResourceType,
)

from tests.support.serve_command import SERVE, Serving, serving

SECONDS = 60
LISTENERS = "listeners=CLIENTS://127.0.0.1:0,INTERNAL://127.0.0.1:0"
SECURE = 'exec "$@" --secure secure'


def kcat(settings: Path, *arguments: str, text: str | None = None) -> str:
    done = subprocess.run(
        ["kcat", "-F", str(settings), *arguments], input=text, capture_output=True, text=True, timeout=SECONDS, check=False
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def settings_in(file: Path) -> dict[str, str]:
    return dict(line.split("=", 1) for line in file.read_text().splitlines())


def write_and_read(broker: Serving, folder: Path, text: str) -> None:
    alice = folder / "alice.librdkafka"
    assert settings_in(alice)["bootstrap.servers"] == broker.bootstrap
    kcat(alice, "-t", "greetings", "-P", text=f"{text}\n")
    assert text in kcat(alice, "-t", "greetings", "-C", "-e").splitlines()


def test_its_users_read_and_write_and_a_second_start_keeps_them(tmp_path: Path) -> None:
    folder = tmp_path / "secure"
    data = f"log.dirs={tmp_path}/data"
    with serving(tmp_path, LISTENERS, data, script=SECURE) as broker:
        write_and_read(broker, folder, "hello")
        admin = AdminClient(settings_in(folder / "admin.librdkafka"))
        every = AclBindingFilter(ResourceType.ANY, None, ResourcePatternType.ANY, None, None, AclOperation.ANY, AclPermissionType.ANY)
        acls = admin.describe_acls(every).result(SECONDS)
        assert {each.principal for each in acls} == {"User:alice"}
        alice = AdminClient(settings_in(folder / "alice.librdkafka"))
        wider = AclBinding(
            ResourceType.TOPIC, "*", ResourcePatternType.LITERAL, "User:alice", "*", AclOperation.ALL, AclPermissionType.ALLOW
        )
        with pytest.raises(confluent_kafka.KafkaException, match="CLUSTER_AUTHORIZATION_FAILED"):
            alice.create_acls([wider])[wider].result(SECONDS)
        stranger = AdminClient({**settings_in(folder / "alice.librdkafka"), "sasl.password": "wrong"})
        with pytest.raises(confluent_kafka.KafkaException):
            stranger.list_topics(timeout=3)
        passwords = [settings_in(folder / f"{user}.librdkafka")["sasl.password"] for user in ("alice", "admin")]
        assert broker.end() == 0
        said = broker.line + broker.rest_of_output()
        assert not [password for password in passwords if password in said + broker.log()]
    assert f"kcat -F {folder}/alice.librdkafka" in said
    assert f"--command-config {folder}/admin.properties" in said
    modes = {path.name: stat.S_IMODE(path.stat().st_mode) for path in folder.iterdir()}
    assert set(modes.values()) == {0o600}
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700
    made = (folder / "certificate.pem").read_bytes()
    with serving(tmp_path, LISTENERS, data, script=SECURE) as broker:
        write_and_read(broker, folder, "again")
        assert (folder / "certificate.pem").read_bytes() == made
        assert broker.end() == 0


def test_a_folder_that_cannot_be_made_ends_the_start_with_one_line(tmp_path: Path) -> None:
    (tmp_path / "secure").write_text("a file")
    done = subprocess.run(
        ["sh", "-c", 'exec "$@" --secure secure/more', "sh", *SERVE],
        cwd=tmp_path, capture_output=True, text=True, timeout=SECONDS, check=False,
    )  # fmt: skip
    assert done.returncode == 1
    assert "secure/more cannot be made: Not a directory" in done.stderr
