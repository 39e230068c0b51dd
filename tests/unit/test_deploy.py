"""The files for servers: units, the sample configuration, the image, the compose file, dashboards and alert rules."""

import json
import re
import shutil
import subprocess
from pathlib import Path

import pytest

from broker.dashboards.files import UnknownMetric, check, expressions, files
from config.broker import BrokerConfig
from config.broker_keys import BROKER_KEYS
from config.loader import from_environment, parse_properties, property_name

ROOT = Path(__file__).parents[2]
DEPLOY = ROOT / "deploy"
UNITS = ("ottla.service", "ottla@.service")


def text_of(name: str) -> str:
    return (ROOT / name).read_text(encoding="utf-8")


def test_the_sample_configuration_is_one() -> None:
    text = text_of("deploy/server.properties")
    config = BrokerConfig(parse_properties(text))
    assert config.unknown == []
    assert config.without_effect == []


def test_every_line_of_the_sample_that_is_commented_out_could_be_used_too() -> None:
    text = re.sub(r"^#(?=[a-z.]+=)", "", text_of("deploy/server.properties"), flags=re.MULTILINE)
    config = BrokerConfig(parse_properties(text))
    assert config.unknown == []
    assert config.without_effect == []


def test_the_sample_says_the_defaults_where_it_does_not_recommend_other_values() -> None:
    recommended = {"broker.id", "broker.rack", "advertised.listeners", "zookeeper.connect", "default.replication.factor",
                   "min.insync.replicas", "transaction.state.log.min.isr"}  # fmt: skip
    compared = 0
    for name, value in re.findall(r"^#([a-z.]+)=(.*)$", text_of("deploy/server.properties"), flags=re.MULTILINE):
        key = BROKER_KEYS[name]
        default = key.render(key.default_for(standalone=False))
        if name not in recommended and not name.startswith("ottla."):
            assert value == default, name
            compared += 1
    assert compared >= 10


@pytest.mark.parametrize("unit", UNITS)
@pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="no systemd-analyze")
def test_the_service_is_confined(unit: str) -> None:
    command = ["systemd-analyze", "security", "--offline=true", "--threshold=20", str(DEPLOY / "systemd" / unit)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="no systemd-analyze")
def test_the_unit_has_no_fault_but_a_missing_program(tmp_path: Path) -> None:
    unit = tmp_path / "ottla.service"
    unit.write_text(text_of("deploy/systemd/ottla.service").replace("/usr/bin/ottla", shutil.which("true") or "/bin/true"))
    done = subprocess.run(["systemd-analyze", "verify", "--man=no", str(unit)], capture_output=True, text=True, check=False)
    assert [line for line in done.stderr.splitlines() if "ottla" in line] == []


def test_the_template_differs_from_the_unit_only_by_the_instance() -> None:
    unit, template = (text_of(f"deploy/systemd/{name}").split("[Service]")[1] for name in UNITS)
    expected = unit.replace("server.properties", "%i.properties")
    for directory in ("StateDirectory=ottla", "LogsDirectory=ottla", "WorkingDirectory=/var/lib/ottla"):
        expected = expected.replace(f"{directory}\n", f"{directory}-%i\n")
    assert template == expected


def test_the_image_runs_as_a_user_checks_its_health_and_stops_cleanly() -> None:
    instructions = re.sub(r"\\\n\s*", "", text_of("Dockerfile"))
    final = instructions.split("\nFROM ")[-1]
    assert re.search(r"^USER ottla$", final, flags=re.MULTILINE)
    assert re.search(r"^STOPSIGNAL SIGTERM$", final, flags=re.MULTILINE)
    assert "/health/ready" in final
    assert re.search(r'^CMD \["ottla", "serve"\]$', final, flags=re.MULTILINE)
    environment = dict(pair.split("=", 1) for pair in re.findall(r"KAFKA_\S+=\S+", final))
    config = BrokerConfig(from_environment(environment))
    assert config.unknown == []
    assert [str(each.port) for each in config.listeners.listeners] == re.findall(r"^EXPOSE (\d+)$", final, flags=re.MULTILINE)


def test_the_dockerfile_keeps_the_rules_of_hadolint() -> None:
    text = re.sub(r"\\\n\s*", "", re.sub(r"^#.*\n", "", text_of("Dockerfile"), flags=re.MULTILINE))
    instructions = [(name, rest) for name, _, rest in (line.partition(" ") for line in text.splitlines() if line.strip())]
    assert {name for name, _ in instructions} >= {"FROM", "RUN", "COPY", "USER", "HEALTHCHECK", "CMD"}
    for name, rest in instructions:
        if name == "FROM":
            assert re.fullmatch(r"\S+:(?!latest)[\w.-]+( AS \w+)?", rest), "an image has a tag (DL3006, DL3007)"
        elif name == "RUN":
            for step in re.split(r"\s+&&\s+", rest):
                assert not re.search(r"[|;]|^(cd|sudo|apt|ssh|kill) ", step), step  # DL3003, DL3004, DL3027, DL4006
                if "apt-get install" in step:
                    assert "--yes" in step, "DL3014"
                    assert "--no-install-recommends" in step, "DL3015"
                    assert "rm -rf /var/lib/apt/lists/*" in rest, "DL3009"
                if re.search(r"\bpip\b.* install\b", step):
                    assert "--no-cache-dir" in step, "DL3042"
        elif name in ("CMD", "ENTRYPOINT"):
            assert json.loads(rest), "DL3025"
        elif name == "HEALTHCHECK":
            assert json.loads(rest.partition("CMD ")[2]), "DL3025"
        elif name in ("WORKDIR", "VOLUME"):
            assert rest.startswith("/"), "DL3000"
        assert name not in ("ADD", "MAINTAINER"), "DL3020, DL4000"
    assert [rest for name, rest in instructions if name == "USER"][-1] != "root", "DL3002"
    assert sum(name == "CMD" for name, _ in instructions) == sum(name == "HEALTHCHECK" for name, _ in instructions) == 1, "DL4003"


def test_the_image_gets_every_package_of_the_project() -> None:
    included = set(re.findall(r"^!(\w+)$", text_of(".dockerignore"), flags=re.MULTILINE))
    packages = {path.parent.name for path in ROOT.glob("*/__init__.py")} - {"tests"}
    assert len(packages) >= 7
    assert packages <= included


def test_every_setting_of_the_compose_file_is_a_key() -> None:
    names = set(re.findall(r"^\s+(KAFKA_\w+):", text_of("deploy/compose.yaml"), flags=re.MULTILINE))
    assert len(names) >= 10
    assert [name for name in names if property_name(name) not in BROKER_KEYS] == []


def test_dashboards_and_rules_are_those_of_the_declarations() -> None:
    made = files()
    assert len(made) == 6
    stale = [name for name, text in made.items() if text_of(name) != text]
    assert not stale, "run `make docs`"
    present = {str(path.relative_to(ROOT)) for folder in ("grafana", "prometheus") for path in (DEPLOY / folder).iterdir()}
    assert present == set(made)


def test_an_expression_with_a_metric_that_no_broker_has_is_refused() -> None:
    with pytest.raises(UnknownMetric, match="kafka_server_no_such_metric in sum"):
        check("sum(kafka_server_no_such_metric)")
    check('sum(kafka_log_log_size{topic="kafka_server_no_such_metric"})')


def test_panels_do_not_overlap() -> None:
    for name, text in files().items():
        if name.endswith(".json"):
            places = [(panel["gridPos"]["x"], panel["gridPos"]["y"]) for panel in json.loads(text)["panels"]]
            assert len(places) == len(set(places))


@pytest.mark.skipif(shutil.which("promtool") is None, reason="no promtool")
def test_prometheus_understands_every_expression(tmp_path: Path) -> None:
    lines = ["groups:", "- name: all", "  rules:"]
    for number, expression in enumerate(expressions()):
        plain = re.sub(r"\$(?=instance|topic|group)\w+", ".*", expression.replace("$__rate_interval", "1m"))
        lines += [f"  - record: 'expression_{number}'", f"    expr: {json.dumps(plain)}"]
    (tmp_path / "all.yml").write_text("\n".join(lines))
    for path in (tmp_path / "all.yml", DEPLOY / "prometheus" / "ottla-rules.yml"):
        done = subprocess.run(["promtool", "check", "rules", str(path)], capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stdout + done.stderr
