"""Serves as `ottla serve FILE` does, for a test in a JVM. Ends when its standard input does, so that no broker outlives the JVM.

OTTLA_SUITE_PRINCIPALS names the principal builder of the test, a Java class. Those that derive the principal from the listener's name are
imitated.
"""

import os
import signal
import sys
import threading
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[2]))

from ottla.__main__ import main
from ottla.broker.metrics import request_metrics
from ottla.broker.network import acceptor
from ottla.broker.security.client import Client
from ottla.broker.security.principals import Principal
from ottla.coordination.groups.consumer import heartbeats, settings

BY_LISTENER = ("AuthorizerIntegrationTest", "PlaintextEndToEndAuthorizationTest")
"""Test classes whose principal builder looks at the name of the listener."""
NAMES = {"BROKER": "broker", "SERVER": "server", "CONTROLLER": "broker", "CLIENT": "client"}
"""Names of principals, by listener."""


def take_principals_from_listeners(builder: str) -> None:
    """Give every connection the principal that the builder would give it. Raises SystemExit for a builder that is not imitated."""
    if not any(name in builder for name in BY_LISTENER):
        sys.exit(f"{builder} is not imitated")
    kind = "Group" if "GroupAuthorizerIntegrationTest" in builder else "User"

    def client(connection_id: str, host: str, port: int, listener: str, protocol: str) -> Client:
        return Client(connection_id, host, port, listener, protocol, Principal(kind, NAMES.get(listener.upper(), "ANONYMOUS")))

    acceptor.Client = client  # type: ignore[assignment, attr-defined]  # the class is called, and nothing else


def time_every_request() -> None:
    """Leave out no request of the metrics of times: a test looks for those of one request."""
    request_metrics.SAMPLE_SPACING_NS = 0  # type: ignore[misc]  # requests are left out that follow sooner


def ask_members_as_rarely_as_apache_kafka() -> None:
    """Tell members of the new protocol the configured interval also while they wait: tests compare it."""
    for module in (heartbeats, settings):
        vars(module)["WAITING_INTERVAL_MS"] = 2**31 - 1  # a limit: nothing is below it


def end_with_the_test() -> None:
    """Wait until the JVM is gone, and end at once."""
    while os.read(0, 1):
        pass
    os.kill(os.getpid(), signal.SIGKILL)


if __name__ == "__main__":
    threading.Thread(target=end_with_the_test, daemon=True).start()
    time_every_request()
    ask_members_as_rarely_as_apache_kafka()
    if "OTTLA_SUITE_PRINCIPALS" in os.environ:
        take_principals_from_listeners(os.environ["OTTLA_SUITE_PRINCIPALS"])
    sys.argv = ["ottla", "serve", *sys.argv[1:]]
    main()
