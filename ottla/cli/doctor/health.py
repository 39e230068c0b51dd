"""Asks brokers at their metrics listeners whether they are degraded, as far as this machine reaches these addresses."""

import http.client
import ipaddress
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from http import HTTPStatus
from typing import Final

from ottla.config.errors import ConfigError
from ottla.config.keys.own import OTTLA_METRICS_LISTENER, address

SECONDS: Final = 2.0
"""Time for the answer of a broker; all are asked at the same time."""
_MOST_THREADS: Final = 32
_DEGRADED: Final = "degraded\n"


def degraded(listeners: Mapping[int, tuple[str, str]]) -> dict[int, str]:
    """The reasons of the brokers that say they are degraded. `listeners` has the metrics listener and the advertised host of each."""
    places = {broker_id: place for broker_id, each in listeners.items() if (place := _place(*each)) is not None}
    if not places:
        return {}
    with ThreadPoolExecutor(min(len(places), _MOST_THREADS)) as threads:
        answers = dict(zip(places, threads.map(_health, places.values()), strict=True))
    return {broker_id: text.removeprefix(_DEGRADED).strip() for broker_id, text in answers.items() if text.startswith(_DEGRADED)}


def _place(listener: str, advertised: str) -> tuple[str, int] | None:
    """Where the listener is seen from here; None if that is not known, or on another machine's loopback interface."""
    try:
        host, port = address(OTTLA_METRICS_LISTENER.name, listener)
    except ConfigError:
        return None
    if not port:
        return None
    if not host or _is(host, "is_unspecified"):
        return advertised, port
    return None if _is(host, "is_loopback") and not _is(advertised, "is_loopback") else (host, port)


def _is(host: str, what: str) -> bool:
    """Whether a host is such an IP address."""
    try:
        found: bool = getattr(ipaddress.ip_address("127.0.0.1" if host == "localhost" else host), what)
    except ValueError:
        return False
    return found


def _health(place: tuple[str, int]) -> str:
    connection = http.client.HTTPConnection(*place, timeout=SECONDS)
    try:
        connection.request("GET", "/health")
        answer = connection.getresponse()
        text = answer.read(10_000).decode("utf-8", "replace")
    except (OSError, http.client.HTTPException, ValueError):
        return ""
    finally:
        connection.close()
    return text if answer.status == HTTPStatus.OK else ""
