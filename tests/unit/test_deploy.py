"""The files for servers: units, the sample configuration, the image, the compose file, dashboards and alert rules."""

import json
import re
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path

import click
import pytest
import yaml

from ottla.cli.cluster.up import up
from ottla.cli.main import main
from ottla.config.broker import BrokerConfig
from ottla.config.broker_keys import BROKER_KEYS
from ottla.config.loader import from_environment, property_name
from ottla.config.properties_format import parse_properties
from ottla.dashboards.files import UnknownMetric, check, expressions, files
from ottla.dashboards.panels import ALERTS
from tests.packages import confinement, dockerfile
from tests.packages.dockerfile import Settings
from tests.support.promtool import find_promtool

ROOT = Path(__file__).parents[2]
DEPLOY = ROOT / "deploy"
UNITS = ("ottla.service", "ottla@.service")
COMPOSE_FILES = ("deploy/compose.yaml", "deploy/compose.single.yaml", "deploy/compose.console.yaml")
CLUSTER_UNIT = "ottla-cluster.service"


def program(name: str) -> str:
    """A linter that is installed with the libraries of the tests."""
    return str(Path(sys.executable).with_name(name))


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


@pytest.mark.parametrize("unit", [*UNITS, CLUSTER_UNIT])
@pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="no systemd-analyze")
def test_the_service_is_confined(unit: str) -> None:
    command = ["systemd-analyze", "security", "--offline=true", "--threshold=20", str(DEPLOY / "systemd" / unit)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.parametrize("name", [*UNITS, CLUSTER_UNIT])
@pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="no systemd-analyze")
def test_the_unit_has_no_fault_but_a_missing_program(name: str, tmp_path: Path) -> None:
    unit = tmp_path / name
    unit.write_text(text_of(f"deploy/systemd/{name}").replace("/usr/bin/ottla", shutil.which("true") or "/bin/true"))
    done = subprocess.run(["systemd-analyze", "verify", "--man=no", str(unit)], capture_output=True, text=True, check=False)
    assert [line for line in done.stderr.splitlines() if "ottla" in line] == []


@pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="no systemd-analyze")
def test_the_filter_of_system_calls_leaves_what_a_broker_needs_and_little_else() -> None:
    lines = re.findall(r"^SystemCallFilter=(.*)$", text_of("deploy/systemd/ottla.service"), flags=re.MULTILINE)
    permitted = confinement.permitted(lines)
    assert {"execve", "fdatasync", "prlimit64", "pwritev", "sched_getaffinity", "sendfile", "setpriority", "setrlimit"} <= permitted
    assert not {"chroot", "init_module", "mount", "nice", "ptrace", "reboot", "sched_setscheduler", "setuid"} & permitted


def test_the_template_differs_from_the_unit_only_by_the_instance() -> None:
    unit, template = (text_of(f"deploy/systemd/{name}").split("[Service]")[1] for name in UNITS)
    expected = unit.replace("server.properties", "%i.properties")
    for directory in ("LogsDirectory=ottla", "WorkingDirectory=/var/lib/ottla"):
        expected = expected.replace(f"{directory}\n", f"{directory}-%i\n")
    comment, directories = re.findall(r"^(#.*\n)(StateDirectory=.*\n)", template, flags=re.MULTILINE)[0]
    assert template == expected.replace("StateDirectory=ottla\n", comment + directories)


def test_the_unit_of_a_host_is_confined_as_that_of_a_broker_and_lets_its_brokers_stop_in_order() -> None:
    unit, of_host = (text_of(f"deploy/systemd/{name}").split("[Service]")[1] for name in ("ottla.service", CLUSTER_UNIT))
    differing = set(of_host.splitlines()) - set(unit.splitlines())
    settings = {line.partition("=")[0] for line in differing if not line.startswith("#")}
    assert settings == {"Environment", "ExecStart", "KillMode", "LogsDirectory", "StateDirectory", "WorkingDirectory"}
    # With "mixed" systemd would kill the brokers of a supervisor that has died, while the kernel has asked them to stop.
    assert "KillMode=process" in differing
    (command,) = re.findall(r"^ExecStart=/usr/bin/ottla (.*) \$OTTLA_CLUSTER_OPTIONS$", of_host, flags=re.MULTILINE)
    words = command.split()
    assert words[:2] == ["cluster", "up"]
    context = up.make_context("up", words[2:])
    assert context.params["per_core"]
    assert context.params["config_file"] == Path("/etc/ottla/cluster/brokers.properties")
    assert context.params["directory"] == Path("/var/lib/ottla/cluster")
    assert {"StateDirectory=ottla ottla/cluster", "WorkingDirectory=/var/lib/ottla/cluster"} <= differing


def test_all_packages_have_the_same_version() -> None:
    (debian,) = re.findall(r"^ottla \(([^)]+)\)", text_of("debian/changelog").splitlines()[0])
    versions = {tomllib.loads(text_of(file))["project"]["version"] for file in ("pyproject.toml", "pytest-ottla/pyproject.toml")}
    assert versions == {debian}


def test_no_name_of_an_instance_leads_to_a_path_of_the_unit_of_a_host() -> None:
    """`ottla@cluster` is an instance as every other one: no name of an instance has a slash."""
    template, of_host = (text_of(f"deploy/systemd/{name}") for name in ("ottla@.service", CLUSTER_UNIT))
    paths = r"/etc/ottla/\S+|/var/lib/ottla\S*|(?<=Directory=)ottla\S*|(?<= )ottla/\S+"
    of_instances = [re.escape(path).replace("%i", "[^/]+") for path in re.findall(paths, template) if "%i" in path]
    assert len(of_instances) >= 4
    own = re.findall(paths, of_host)
    assert {"/etc/ottla/cluster/brokers.properties", "/var/lib/ottla/cluster", "ottla/cluster"} <= set(own)
    assert [path for path in own for pattern in of_instances if re.fullmatch(pattern, path)] == []


def test_instances_of_the_template_may_write_the_metadata_file_that_its_advice_has_them_share() -> None:
    template = text_of("deploy/systemd/ottla@.service")
    (shared,) = re.findall(r"^# ottla\.metadata\.file=/var/lib/(\S+)/\S+$", template, flags=re.MULTILINE)
    assert "ProtectSystem=strict\n" in template
    (directories,) = re.findall(r"^StateDirectory=(.*)$", template, flags=re.MULTILINE)
    assert directories.split() == ["ottla-%i", shared]


def test_the_unit_expects_the_rights_that_the_package_gives_its_directories() -> None:
    """systemd complains at each start of a directory for configurations with other rights."""
    unit, postinst, rules = (text_of(name) for name in ("deploy/systemd/ottla.service", "debian/ottla.postinst", "debian/rules"))
    modes = set(re.findall(r"^(?:State|Logs|Configuration)DirectoryMode=(\d+)$", unit, flags=re.MULTILINE))
    (of_data,) = re.findall(r"install -d -o ottla -g ottla -m (\d+)", postinst)
    (of_configuration,) = re.findall(r"chmod (\d+) \$\(ROOT\)/etc/ottla$", rules, flags=re.MULTILINE)
    assert modes == {of_data, of_configuration} == {"0750"}
    assert unit.count("DirectoryMode=") == 3


def test_the_image_runs_as_a_user_checks_its_health_and_stops_cleanly() -> None:
    instructions = re.sub(r"\\\n\s*", "", text_of("Dockerfile"))
    final = instructions.split("\nFROM ")[-1]
    assert re.search(r"^USER 1000$", final, flags=re.MULTILINE)
    assert re.search(r"^STOPSIGNAL SIGTERM$", final, flags=re.MULTILINE)
    assert "/health/ready" in final
    assert re.search(r'^CMD \["/etc/kafka/docker/run"\]$', final, flags=re.MULTILINE)
    environment = dict(pair.split("=", 1) for pair in re.findall(r"KAFKA_\S+=\S+", final))
    config = BrokerConfig(from_environment(environment))
    assert config.unknown == []
    assert [str(each.port) for each in config.listeners.listeners] == re.findall(r"^EXPOSE (\d+)$", final, flags=re.MULTILINE)


def test_hadolint_finds_nothing_in_the_dockerfile() -> None:
    done = subprocess.run([program("hadolint"), "Dockerfile"], cwd=ROOT, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout + done.stderr) == (0, "")


def test_hadolint_would_find_an_image_of_any_version(tmp_path: Path) -> None:
    (tmp_path / "Dockerfile").write_text(text_of("Dockerfile").replace("debian:bookworm-slim", "debian:latest"))
    done = subprocess.run([program("hadolint"), "Dockerfile"], cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert "DL3007" in done.stdout


@pytest.mark.slow
def test_the_compose_files_fit_the_schema_of_compose_files() -> None:
    command = [program("check-jsonschema"), "--builtin-schema", "vendor.compose-spec", *COMPOSE_FILES]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


def test_every_instruction_of_the_dockerfile_is_one_that_its_trial_carries_out() -> None:
    build, final = dockerfile.parse(text_of("Dockerfile"))
    assert (build.name, final.name) == ("build", "")
    settings = Settings()
    for instruction in final.instructions:
        if instruction.name not in dockerfile.CHANGING:
            dockerfile.apply(settings, instruction)
    assert (settings.user, settings.folder, settings.volumes, settings.ports) == ("1000", "/data", ["/data"], [9092])
    assert settings.command == ["/etc/kafka/docker/run"]
    assert settings.environment["PATH"].startswith("/opt/ottla/bin:/usr/local/sbin:")
    assert settings.health is not None
    assert (settings.health.command[0], settings.health.timeout) == ("python3", 3.0)


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("FROM debian:bookworm-slim\nADD a b\n", "the instruction ADD is not known"),
        ("RUN true\n", "RUN stands before the first FROM"),
        ("FROM debian AS a b\n", "FROM debian AS a b is not understood"),
    ],
)
def test_an_instruction_that_the_trial_does_not_know_is_refused(text: str, why: str) -> None:
    with pytest.raises(ValueError, match=why):
        dockerfile.parse(text)


def test_the_context_of_a_build_has_the_sources_and_nothing_that_was_made_of_them(tmp_path: Path) -> None:
    names = (
        "broker/server.py",
        "broker/log/a.so",
        "broker/__pycache__/a.pyc",
        "LICENSE",
        "tests/test_a.py",
        "data/a.log",
        "protocol/a.digest",
    )
    for name in names:
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).touch()
    found = dockerfile.context_files(tmp_path, text_of(".dockerignore"))
    assert [str(path) for path in found] == ["LICENSE", "broker/server.py"]


def test_the_image_gets_every_package_of_the_project() -> None:
    included = set(re.findall(r"^!(\w+)$", text_of(".dockerignore"), flags=re.MULTILINE))
    packages = {path.parent.name for path in ROOT.glob("*/__init__.py")} - {"tests"}
    assert len(packages) >= 7
    assert packages <= included


@pytest.mark.parametrize("name", ["debian/rules", "Dockerfile"])
def test_the_package_and_the_image_have_the_extras_of_a_server_in_the_versions_that_were_tested(name: str) -> None:
    found = re.search(r"""--constraint \S+ ["'][^"'[]+\[([\w,]+)\]["']""", text_of(name))
    assert found is not None
    extras = tomllib.loads(text_of("pyproject.toml"))["project"]["optional-dependencies"]
    assert set(found[1].split(",")) == {"console", "regex", "security"} <= extras.keys()
    wanted = {requirement.partition(">")[0].lower() for extra in found[1].split(",") for requirement in extras[extra]}
    assert wanted <= {line.partition("==")[0].lower() for line in text_of("constraints.txt").splitlines()}


def test_every_setting_of_the_compose_files_is_a_key() -> None:
    text = "".join(map(text_of, COMPOSE_FILES))
    names = set(re.findall(r"^\s+(KAFKA_\w+):", text, flags=re.MULTILINE))
    assert len(names) >= 10
    assert [name for name in names if property_name(name) not in BROKER_KEYS] == []


def test_the_compose_file_of_one_broker_has_the_settings_of_one() -> None:
    (broker,) = yaml.safe_load(text_of("deploy/compose.single.yaml"))["services"].values()
    config = BrokerConfig(from_environment(broker["environment"]))
    assert (config.unknown, config.standalone) == ([], True)
    assert {(each.host, each.port) for each in config.listeners.advertised} == {("localhost", 9092), ("broker", 19092)}
    assert broker["ports"] == ["127.0.0.1:9092:9092"]


def test_the_compose_file_of_the_console_has_options_that_it_knows_and_a_broker_that_the_other_files_publish() -> None:
    (service,) = yaml.safe_load(text_of("deploy/compose.console.yaml"))["services"].values()
    assert service["command"][:2] == ["ottla", "console"]
    command = main.get_command(click.Context(main), "console")
    assert command is not None
    options = command.make_context("console", service["command"][2:]).params
    assert options["listen"] == "127.0.0.1:8080"
    for name in ("deploy/compose.yaml", "deploy/compose.single.yaml"):
        services = yaml.safe_load(text_of(name))["services"].values()
        published = [port for each in services for port in each.get("ports", ())]
        assert options["bootstrap"].removeprefix("localhost:") in {port.rpartition(":")[2] for port in published}
        assert all(each["image"] == service["image"] for each in services if each["image"] != "zookeeper:3.9")


def test_dashboards_and_rules_are_those_of_the_declarations() -> None:
    made = files()
    assert len(made) == 7
    stale = [name for name, text in made.items() if text_of(name) != text]
    assert not stale, "run `make docs`"
    present = {str(path.relative_to(ROOT)) for folder in ("grafana", "prometheus") for path in (DEPLOY / folder).iterdir()}
    assert present == set(made)


@pytest.mark.skipif(find_promtool() is None, reason="no promtool (Debian: in the package prometheus)")
def test_the_loss_of_all_brokers_is_an_alert(tmp_path: Path) -> None:
    (alert,) = (each for each in ALERTS if each.name == "OttlaNoBroker")
    expected = {
        "exp_labels": {"severity": "critical"},
        "exp_annotations": {"summary": alert.summary, "description": alert.description},
    }
    at_two_minutes = {"eval_time": "2m", "alertname": alert.name, "exp_alerts": [expected]}
    without_series = {"interval": "1m", "input_series": [], "alert_rule_test": [at_two_minutes]}
    rules = DEPLOY / "prometheus" / "ottla-rules.yml"
    (tmp_path / "test.yml").write_text(json.dumps({"rule_files": [str(rules)], "evaluation_interval": "1m", "tests": [without_series]}))
    done = subprocess.run([str(find_promtool()), "test", "rules", "test.yml"], cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


def test_an_expression_with_a_metric_that_no_broker_has_is_refused() -> None:
    with pytest.raises(UnknownMetric, match="kafka_server_no_such_metric in sum"):
        check("sum(kafka_server_no_such_metric)")
    check('sum(kafka_log_log_size{topic="kafka_server_no_such_metric"})')


def test_panels_do_not_overlap() -> None:
    for name, text in files().items():
        if name.endswith(".json"):
            places = [(panel["gridPos"]["x"], panel["gridPos"]["y"]) for panel in json.loads(text)["panels"]]
            assert len(places) == len(set(places))


@pytest.mark.skipif(find_promtool() is None, reason="no promtool (Debian: in the package prometheus)")
def test_prometheus_understands_every_expression(tmp_path: Path) -> None:
    lines = ["groups:", "- name: all", "  rules:"]
    for number, expression in enumerate(expressions()):
        plain = re.sub(r"\$(?=instance|topic|group)\w+", ".*", expression.replace("$__rate_interval", "1m"))
        lines += [f"  - record: 'expression_{number}'", f"    expr: {json.dumps(plain)}"]
    (tmp_path / "all.yml").write_text("\n".join(lines))
    for path in (tmp_path / "all.yml", DEPLOY / "prometheus" / "ottla-rules.yml"):
        done = subprocess.run([str(find_promtool()), "check", "rules", str(path)], capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stdout + done.stderr
