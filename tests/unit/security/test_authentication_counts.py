"""The counts of authentications of a listener, as the metrics show them."""

from math import isnan
from types import SimpleNamespace

from ottla.broker.metrics.connection_families import CONNECTION_FAMILIES
from ottla.broker.network.authentication_counts import AuthenticationCounts

PREFIX = "kafka_server_socket_server_metrics_"


def shown(counts: AuthenticationCounts, now: float) -> dict[str, float]:
    acceptor = SimpleNamespace(endpoint=SimpleNamespace(listener_name="SASL"), authentications=counts)
    view = SimpleNamespace(now=lambda: now, socket_server=SimpleNamespace(acceptors=[acceptor]))
    families = [each for each in CONNECTION_FAMILIES if "authentication" in each.name or "expired" in each.name]
    found = {}
    for family in families:
        ((labels, value),) = family.read(view)  # type: ignore[arg-type]  # the part of a View that these families read
        assert labels == '{listener="SASL"}'
        found[family.name.removeprefix(PREFIX)] = value
    return found


def test_first_and_repeated_authentications_and_failures_are_told_apart() -> None:
    counts = AuthenticationCounts(0.0)
    at_first = shown(counts, 1.0)
    assert isnan(at_first.pop("reauthentication_latency_avg"))
    assert set(at_first.values()) == {0}
    for _ in range(3):
        counts.on_success(1.0, can_authenticate_again=True)
    counts.on_success(1.0, can_authenticate_again=False)
    counts.on_success_again(1.0, 10.0)
    counts.on_success_again(1.0, 20.0)
    counts.on_failure(1.0, is_again=False)
    counts.on_failure(1.0, is_again=True)
    counts.on_failure(1.0, is_again=True)
    counts.expired_connections_killed_count += 1
    assert shown(counts, 1.0) == {
        "successful_authentication_total": 4,
        "successful_authentication_rate": 0.4,
        "successful_authentication_no_reauth_total": 1,
        "failed_authentication_total": 1,
        "failed_authentication_rate": 0.1,
        "successful_reauthentication_total": 2,
        "successful_reauthentication_rate": 0.2,
        "failed_reauthentication_total": 2,
        "failed_reauthentication_rate": 0.2,
        "reauthentication_latency_avg": 15.0,
        "expired_connections_killed_count": 1,
    }
