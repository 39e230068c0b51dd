"""Secures a broker in a root so that it needs every library of the extra `security`, and asks a console in the same root.

The listener CLIENTS has a PKCS12 store, SCRAM and signed tokens. The listener INTERNAL has the usual port, for administrators of the host.
"""

import json
from typing import Any

import jwt
from cryptography.hazmat.primitives.asymmetric import ec

from tests.packages.roots import Running
from tests.support.certificates import Identity

ADDRESS = "127.0.0.1:9093"
USER = "alice"
_PASSWORD = "of-the-store"
_USER_PASSWORD = "of-alice"
_MODULES = "org.apache.kafka.common.security"
_CLIENTS = "listener.name.clients"
_ASK_CONSOLE = """
import subprocess, sys, urllib.request
with subprocess.Popen(["ottla", "console", "--listen", "127.0.0.1:0", *sys.argv[1:]], stdout=subprocess.PIPE, text=True) as console:
    try:
        address = console.stdout.readline().split()[-1]
        page = urllib.request.urlopen(address, timeout=60).read().decode()
        assert "<title>Ottla console</title>" in page, page
        print(urllib.request.urlopen(address + "api/v1/topics", timeout=60).read().decode())
    finally:
        console.terminate()
"""


def settings(folder: str) -> dict[str, str]:
    """The keys of the broker, whose files are in this folder of the root."""
    return {
        "listeners": f"INTERNAL://127.0.0.1:9092,CLIENTS://{ADDRESS}",
        "listener.security.protocol.map": "INTERNAL:PLAINTEXT,CLIENTS:SASL_SSL",
        "inter.broker.listener.name": "INTERNAL",
        "ssl.keystore.type": "PKCS12",
        "ssl.keystore.location": f"{folder}/broker.p12",
        "ssl.keystore.password": _PASSWORD,
        "sasl.enabled.mechanisms": "SCRAM-SHA-512,OAUTHBEARER",
        "password.encoder.secret": "of-the-encoder",
        f"{_CLIENTS}.scram-sha-512.sasl.jaas.config": f"{_MODULES}.scram.ScramLoginModule required;",
        f"{_CLIENTS}.oauthbearer.sasl.jaas.config": f"{_MODULES}.oauthbearer.OAuthBearerLoginModule required;",
        f"{_CLIENTS}.oauthbearer.sasl.server.callback.handler.class": f"{_MODULES}.oauthbearer.OAuthBearerValidatorCallbackHandler",
        f"{_CLIENTS}.oauthbearer.sasl.oauthbearer.jwks.endpoint.url": f"file:{folder}/keys.json",
        f"{_CLIENTS}.oauthbearer.sasl.oauthbearer.expected.audience": "kafka",
    }


def files(folder: str) -> dict[str, bytes]:
    """The contents of the files of the broker and of its client, by their names in this folder of the root."""
    authority = Identity("CN=authority")
    issuer = json.loads(jwt.get_algorithm_by_name("ES256").to_jwk(ec.generate_private_key(ec.SECP256R1()).public_key()))
    client = {
        "security.protocol": "SASL_SSL",
        "ssl.truststore.type": "PEM",
        "ssl.truststore.location": f"{folder}/authority.pem",
        "sasl.mechanism": "SCRAM-SHA-512",
        "sasl.jaas.config": f'{_MODULES}.scram.ScramLoginModule required username="{USER}" password="{_USER_PASSWORD}";',
    }
    return {
        "broker.p12": Identity("CN=localhost", authority).pkcs12(_PASSWORD),
        "authority.pem": authority.certificate_pem.encode(),
        "keys.json": json.dumps({"keys": [{**issuer, "kid": "one"}]}).encode(),
        "client.properties": "".join(f"{key}={value}\n" for key, value in client.items()).encode(),
    }


def write_as_user(running: Running, folder: str, topic: str) -> None:
    """Make the user, and let it write a record over TLS, which it can read again."""
    login = ("--bootstrap-server", ADDRESS, "--command-config", f"{folder}/client.properties")
    running.run("ottla", "users", "add", USER, "--mechanism", "scram-sha-512", input=f"{_USER_PASSWORD}\n")
    running.run("ottla", "produce", topic, "--create-topic", *login, input="a secret record\n")
    assert running.run("ottla", "consume", "-e", topic, *login) == "a secret record\n"


def topics_in_console(running: Running, folder: str) -> list[str]:
    """The names of the topics that a console shows, which logs in as the user."""
    login = ("--bootstrap-server", ADDRESS, "--command-config", f"{folder}/client.properties")
    said = running.run("python3", "-c", _ASK_CONSOLE, *login)
    found: dict[str, Any] = json.loads(next(line for line in said.splitlines() if line.startswith("{")))
    return [topic["name"] for topic in found["topics"]]
