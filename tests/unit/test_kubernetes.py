"""The manifests for Kubernetes: they fit its schemas, their settings are keys, and a broker starts with what its command passes."""

from __future__ import annotations

import os
import re
import subprocess
from pathlib import Path
from typing import Any

import kubernetes_validate
import pytest
import yaml

from ottla.config.broker import BrokerConfig
from ottla.config.loader import load_properties, remarks

ROOT = Path(__file__).parents[2]
FOLDER = ROOT / "deploy" / "kubernetes"
DOCKERFILE = ROOT / "Dockerfile"
VERSIONS = ("1.30", "1.37")
FILES = ("brokers.yaml", "zookeeper.yaml")
PRINTS_WHAT_IT_GETS = """#!/bin/sh
printf "%s\\n" "$@"
env | sed -n /^KAFKA_/p > variables
"""


def documents(name: str) -> list[dict[str, Any]]:
    return list(yaml.safe_load_all((FOLDER / name).read_text(encoding="utf-8")))


def pod(name: str) -> dict[str, Any]:
    (found,) = (each for each in documents(name) if each["kind"] == "StatefulSet")
    template: dict[str, Any] = found["spec"]["template"]
    return template


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("name", FILES)
def test_every_object_fits_the_schema(name: str, version: str) -> None:
    for each in documents(name):
        kubernetes_validate.validate(each, version, strict=True)


def test_an_object_that_does_not_fit_is_found() -> None:
    service = documents("brokers.yaml")[0]
    service["spec"]["ports"][0]["prot"] = "TCP"
    with pytest.raises(kubernetes_validate.ValidationError, match="prot"):
        kubernetes_validate.validate(service, VERSIONS[0], strict=True)


def test_everything_is_named_in_the_customization() -> None:
    found = yaml.safe_load((FOLDER / "kustomization.yaml").read_text(encoding="utf-8"))
    named = {*found["resources"], *(file for each in found["configMapGenerator"] for file in each["files"]), "kustomization.yaml"}
    assert named == {path.name for path in FOLDER.iterdir()}


@pytest.mark.parametrize("name", FILES)
def test_selectors_and_budgets_meet_the_pods(name: str) -> None:
    labels = pod(name)["metadata"]["labels"]
    for each in documents(name):
        selector = each["spec"]["selector"]
        wanted = selector.get("matchLabels", selector)
        assert wanted.items() <= labels.items(), each["kind"]


def started(kind: str, folder: Path) -> tuple[list[str], dict[str, str]]:
    """Run the command of a container of brokers, with a program in the place of `ottla`: the words and the variables that it gets."""
    stub = folder / "ottla"
    stub.write_text(PRINTS_WHAT_IT_GETS)
    stub.chmod(0o755)
    (container,) = pod("brokers.yaml")["spec"][kind]
    command = [part.replace("/users/", f"{folder}/") for part in container["command"]]
    of_the_image = dict(pair.split("=", 1) for pair in re.findall(r"KAFKA_\S+=\S+", DOCKERFILE.read_text(encoding="utf-8")))
    assert of_the_image
    given = {"PATH": f"{folder}:{os.environ['PATH']}", "HOSTNAME": "ottla-2", "NAMESPACE": "events", "NODE": "node-b", **of_the_image}
    done = subprocess.run(command, env=given, cwd=folder, capture_output=True, text=True, check=True)
    variables = dict(line.split("=", 1) for line in (folder / "variables").read_text().splitlines())
    return done.stdout.splitlines(), variables


def test_a_broker_starts_with_what_its_command_passes(tmp_path: Path) -> None:
    (tmp_path / "broker").write_text("secret\n")
    words, variables = started("containers", tmp_path)
    assert words[:2] == ["serve", "/config/server.properties"]
    assignments = [word for word in words if "=" in word]
    properties = load_properties(FOLDER / "server.properties", variables, assignments)
    assert properties["broker.id"] == "2"
    assert properties["broker.rack"] == "node-b"
    for key in ("listeners", "log.dirs", "ottla.metrics.listener"):
        assert properties[key] == load_properties(FOLDER / "server.properties")[key]
    assert properties["advertised.listeners"] == "CLIENTS://ottla-2.ottla.events.svc:9092,BROKERS://ottla-2.ottla.events.svc:9093"
    login = properties["listener.name.brokers.scram-sha-512.sasl.jaas.config"]
    assert login.endswith('required username="broker" password="secret";')
    assert remarks(BrokerConfig(properties)) == []


def test_users_are_added_by_the_file_alone(tmp_path: Path) -> None:
    words, variables = started("initContainers", tmp_path)
    assert words[:3] == ["users", "add", "broker"]
    assert words.count("/config/server.properties") == 2
    assert variables == {}


def test_every_key_of_a_secret_is_named_and_none_is_optional() -> None:
    """Kubernetes starts no pod whose volume names a key that the secret lacks. Without names it would mount the others."""
    spec = pod("brokers.yaml")["spec"]
    secrets = {each["name"]: each["secret"] for each in spec["volumes"] if "secret" in each}
    mounts = {each["name"]: each["mountPath"] for each in spec["containers"][0]["volumeMounts"]}
    assert [each for each in secrets.values() if each.get("optional")] == []
    files = {f"{mounts[name]}/{item['path']}" for name, secret in secrets.items() for item in secret["items"]}
    commands = " ".join(word for each in (*spec["initContainers"], *spec["containers"]) for word in each["command"])
    (users,) = re.findall(r"for user in (.*); do", commands)
    used = {f"/users/{user}" for user in users.split()} | set(re.findall(r"/(?:tls|users)/[\w.]+", commands))
    used |= {value for key, value in load_properties(FOLDER / "server.properties").items() if key.endswith("store.location")}
    assert files == used


def test_probes_and_ports_are_those_of_the_configuration() -> None:
    (container,) = pod("brokers.yaml")["spec"]["containers"]
    properties = load_properties(FOLDER / "server.properties")
    ports = {each["name"]: each["containerPort"] for each in container["ports"]}
    assert properties["listeners"] == f"CLIENTS://:{ports['clients']},BROKERS://:{ports['brokers']}"
    assert properties["ottla.metrics.listener"] == f"0.0.0.0:{ports['metrics']}"
    probes = {name: container[name]["httpGet"] for name in ("startupProbe", "livenessProbe", "readinessProbe")}
    assert {each["port"] for each in probes.values()} == {"metrics"}
    assert probes["readinessProbe"]["path"] == "/health/ready"
    mounted = {each["mountPath"] for each in container["volumeMounts"]}
    for key in ("ssl.keystore.location", "ssl.truststore.location", "log.dirs"):
        assert any(properties[key].startswith(f"{path}/") for path in mounted), key
