"""Measures TLS: requests over it, handshakes, the memory of idle connections, and plaintext clients beside handshakes.

The broker has a further listener for each kind of certificate, which is added while it runs, as both brokers can. The generator is Python.
Its share of its core is noted; when that is near 1, the broker could do more.
"""

import datetime
import ipaddress
import statistics
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Final

from cryptography import x509
from cryptography.hazmat.primitives.asymmetric import ec, rsa
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat

from benchmarks.brokers import process
from benchmarks.brokers.kinds import COMMON_CONFIG
from benchmarks.loadgen import tls_load
from benchmarks.loadgen.runner import Load, Measured
from benchmarks.loads import workloads
from benchmarks.loads.admin import Admin, BrokerRefusedError, Topic
from benchmarks.parts.part import BROKER_LABELS, Part, running
from benchmarks.parts.single import prepare_fetches
from benchmarks.report.lines import Line, latency_of, number
from benchmarks.turns.sizes import Size
from benchmarks.turns.turn import Bench, OnInterval, Plan, Turn
from ottla.protocol.api_keys import ApiKey
from ottla.protocol.messages.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResponse,
)
from tests.support.apache_kafka import free_ports

IDLE: Final = 1000
"""Idle connections whose memory is measured."""
BESIDE_PER_SECOND: Final = 200
"""Handshakes a second beside the plaintext client."""
_BROKER: Final = 4
"""The type of a broker in a request about configurations."""
_KEYS: Final[Mapping[str, Callable[[], ec.EllipticCurvePrivateKey | rsa.RSAPrivateKey]]] = {
    "ecdsa": lambda: ec.generate_private_key(ec.SECP256R1()),
    "rsa": lambda: rsa.generate_private_key(public_exponent=65537, key_size=2048),
}
PRODUCE: Final = next(load for load in workloads.PRODUCE if load.key == "produce-16k")
FETCHES: Final = workloads.FETCH


def _key_store(kind: str, folder: Path) -> Path:
    """A PEM file with a key and a certificate that it signs itself."""
    key = _KEYS[kind]()
    name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "localhost")])
    now = datetime.datetime.now(datetime.UTC)
    names = x509.SubjectAlternativeName([x509.IPAddress(ipaddress.ip_address("127.0.0.1"))])
    until = now + datetime.timedelta(days=2)
    builder = x509.CertificateBuilder(name, name, key.public_key(), x509.random_serial_number(), now, until)
    certificate = builder.add_extension(names, critical=False).sign(key, SHA256())
    folder.mkdir(parents=True, exist_ok=True)
    file = folder / f"{kind}.pem"
    private = key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
    file.write_bytes(private + certificate.public_bytes(Encoding.PEM))
    return file


def take_turn(kind: str, turn: Turn, directory: Path, plan: Plan) -> None:
    """All of it on one broker, bound to its core."""
    keys = directory.parent / f"{directory.name}-keys"
    config = {**COMMON_CONFIG, "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,ECDSA:SSL,RSA:SSL"}
    for name in _KEYS:
        prefix = f"listener.name.{name}.ssl.keystore"
        config |= {f"{prefix}.type": "PEM", f"{prefix}.location": str(_key_store(name, keys))}
    with running(kind, turn, directory, plan, config=config) as bench:
        ports = dict(zip(_KEYS, free_ports(len(_KEYS)), strict=True))
        bench.attempt("listeners", partial(_add_listeners, bench, ports))
        if "listeners" in turn.failures:
            return
        bench.on_topic(PRODUCE.key, workloads.PRODUCE_CONNECTIONS, partial(_produce, bench, ports["ecdsa"]))
        bench.on_topic("fetched", workloads.FETCH_CONNECTIONS, partial(_fetch, bench, ports["ecdsa"]))
        for name, port in ports.items():
            bench.attempt(f"handshakes-{name}", partial(_shake_hands, bench, name, port, is_resumed=False))
        bench.attempt("handshakes-resumed", partial(_shake_hands, bench, "resumed", ports["ecdsa"], is_resumed=True))
        bench.attempt("idle", partial(_hold, bench, ports["ecdsa"]))
        bench.on_topic("beside", workloads.PRODUCE_CONNECTIONS, partial(_beside, bench, ports["ecdsa"]))


def _add_listeners(bench: Bench, ports: Mapping[str, int]) -> None:
    listeners = [f"PLAINTEXT://127.0.0.1:{bench.broker.port}", *(f"{name.upper()}://127.0.0.1:{port}" for name, port in ports.items())]
    with Admin("127.0.0.1", bench.broker.port) as admin:
        settings = [
            AlterableConfig(name=key, config_operation=0, value=",".join(listeners)) for key in ("listeners", "advertised.listeners")
        ]
        resource = AlterConfigsResource(resource_type=_BROKER, resource_name=str(admin.controller_id()), configs=settings)
        request = IncrementalAlterConfigsRequest(resources=[resource], validate_only=False)
        (answer,) = admin.ask(ApiKey.INCREMENTAL_ALTER_CONFIGS, request, IncrementalAlterConfigsResponse).responses
    if answer.error_code:
        raise BrokerRefusedError(f"IncrementalAlterConfigs: error code {answer.error_code}, {answer.error_message}")


def _load(bench: Bench, key: str, title: str, port: int, frames: Sequence[bytes], connections: int, payload: int) -> None:
    """Warm up, measure, and note MB/s of the payload, the broker's processor time per MB, and how busy the generator is."""
    pace, numbers = bench.plan.size.pace, bench.turn.numbers

    def send(seconds: float) -> dict[str, float]:
        return tls_load.run(tls_load.requests(port, frames, connections, seconds), bench.plan.cores.generator, seconds)

    bench.warm_up_by(partial(send, pace.warm_up_slice_s), pace.warm_up_limit_s)
    found, used_s = _in_windows(bench, send)
    megabytes_per_second = found["per_second"] * payload / 1e6
    numbers[f"{key}_mb_s"] = megabytes_per_second
    numbers[f"{key}_cpu_s_per_gb"] = used_s / pace.duration_s / megabytes_per_second * 1000
    numbers[f"{key}_generator"] = found["busy_share"]
    bench.say(f"{title} over TLS: {megabytes_per_second:,.0f} MB/s, the generator {found['busy_share']:.0%} busy")


def _in_windows(bench: Bench, run: Callable[[float], dict[str, float]]) -> tuple[dict[str, float], float]:
    """The medians of the figures of all windows, and the broker's processor time in them, in seconds."""
    length_s, windows, used_s = bench.plan.size.pace.duration_s / bench.plan.size.windows, [], 0.0
    for _ in bench.plan.windows():
        before = process.cpu_s(bench.broker.pid)
        windows.append(run(length_s))
        used_s += process.cpu_s(bench.broker.pid) - before
    return {key: statistics.median(each[key] for each in windows) for key in windows[0]}, used_s


def _frames(load: Load) -> list[bytes]:
    """The requests of a load, none of which is prepared anew each time."""
    return [each for each in load.frames if isinstance(each, bytes)]


def _produce(bench: Bench, port: int, topic: Topic) -> None:
    frames = _frames(PRODUCE.load(topic, bench.plan.size.pace))
    _load(bench, PRODUCE.key, PRODUCE.title, port, frames, workloads.PRODUCE_CONNECTIONS, len(frames[0]))


def _fetch(bench: Bench, port: int, topic: Topic) -> None:
    prepare_fetches(bench, topic)
    for fetch in FETCHES:
        frames = _frames(fetch.load(topic, bench.plan.size.pace))
        _load(bench, fetch.key, fetch.title, port, frames, workloads.FETCH_CONNECTIONS, fetch.max_bytes)


def _shake_hands(bench: Bench, name: str, port: int, *, is_resumed: bool) -> None:
    pace = bench.plan.size.pace

    def shake(seconds: float) -> dict[str, float]:
        return tls_load.run(tls_load.handshakes(port, seconds, is_resumed=is_resumed), bench.plan.cores.generator, seconds)

    bench.warm_up_by(partial(shake, pace.warm_up_slice_s), pace.warm_up_limit_s)
    found, _ = _in_windows(bench, shake)
    bench.turn.numbers[f"handshakes_{name}"] = found["per_second"]
    bench.turn.numbers[f"handshakes_{name}_generator"] = found["busy_share"]
    bench.say(f"{name}: {found['per_second']:,.0f} handshakes/s, {found['reused_share']:.0%} resumed, generator {found['busy_share']:.0%}")


def _hold(bench: Bench, port: int) -> None:
    bench.settle()
    before = process.resident_bytes(bench.broker.pid)
    with tls_load.start(tls_load.idle(port, IDLE), bench.plan.cores.generator) as holder:
        assert holder.stdout is not None
        if holder.stdout.readline() != "{}\n":
            raise OSError("the idle connections were not opened")
        bench.settle()
        grown = process.resident_bytes(bench.broker.pid) - before
        assert holder.stdin is not None
        holder.stdin.close()
        holder.wait()
    bench.turn.numbers["idle_bytes"] = max(grown, 0) / IDLE
    bench.say(f"{grown / IDLE / 1024:,.0f} KiB of memory for each of {IDLE:,} idle connections")


def _beside(bench: Bench, port: int, topic: Topic) -> None:
    """A plaintext load, alone and beside handshakes, which have no core of their own."""
    load = next(each for each in workloads.PRODUCE if each.key == "steady").load(topic, bench.plan.size.pace)
    bench.measure("alone", "plaintext alone", load)

    def window(part: Load, on_interval: OnInterval) -> Measured:
        task = tls_load.handshakes(port, part.warm_up_s + part.duration_s, per_second=BESIDE_PER_SECOND)
        with tls_load.start(task, bench.plan.cores.generator) as shaking:
            measured = bench.load(part, on_interval)
            shaking.communicate(timeout=60)
        return measured

    bench.measure("beside", f"plaintext beside {BESIDE_PER_SECOND} handshakes/s", load, run=window)


def _pair(key: str, title: str) -> tuple[Line, ...]:
    return (
        Line(key, f"{title} over TLS", "MB/s", number(f"{key}_mb_s"), ratio_at_least=1.5),
        Line(f"{key}-cost", f"cost: {title} over TLS", "CPU s/GB", number(f"{key}_cpu_s_per_gb"), 2, True),
    )


LINES: Sequence[Line] = (
    *_pair(PRODUCE.key, PRODUCE.title),
    *(line for fetch in FETCHES for line in _pair(fetch.key, fetch.title)),
    *(
        Line(f"handshakes-{name}", f"TLS handshakes, {title}", "1/s", number(f"handshakes_{name}"), ratio_at_least=2)
        for name, title in (("ecdsa", "ECDSA P-256"), ("rsa", "RSA-2048"), ("resumed", "resumed (TLS 1.2)"))
    ),
    Line("idle", f"memory of an idle TLS connection, of {IDLE:,}", "KiB", number("idle_bytes", 1024), 0, True, ratio_at_least=4),
    Line(
        "beside-p99", f"plaintext beside {BESIDE_PER_SECOND} handshakes/s: p99", "ms", latency_of("beside", 99), 2, True, ratio_at_least=1
    ),
    Line("alone-p99", "the same alone: p99", "ms", latency_of("alone", 99), 2, True),
)


def lines(_: Size) -> Sequence[Line]:
    return LINES


PART = Part(
    key="tls",
    title="TLS",
    about="The loads of the part `single` over TLS 1.3, on a broker that is bound to one core; handshakes, each with a new connection; "
    "memory of idle connections; and a plaintext client beside handshakes.",
    take_turn=take_turn,
    lines=lines,
    kinds=BROKER_LABELS,
    is_repeated=True,
)
