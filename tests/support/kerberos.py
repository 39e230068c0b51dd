"""Runs a Kerberos realm for tests: a KDC of MIT on 127.0.0.1, with all of its files in one folder.

`with a_realm(folder) as realm:` starts it. The environment of this process points the Kerberos library to the realm, so a broker in this
process, and programs that it starts, use it. `missing()` says why there can be no realm here.
"""

from __future__ import annotations

import os
import shutil
import signal
import socket
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path

import pytest

from tests.support.apache_kafka.guard import process_guard
from tests.support.apache_kafka.ports import free_ports
from tests.support.broker_process import eventually

REALM = "OTTLA.TEST"
PROGRAMS = {"krb5kdc": "krb5-kdc", "kdb5_util": "krb5-kdc", "kadmin.local": "krb5-admin-server", "kinit": "krb5-user"}
"""The programs that a realm needs, and Debian's packages."""
SASL_PLUGIN = "libgssapiv2.so"
"""The plugin that librdkafka's SASL library loads; of Debian's libsasl2-modules-gssapi-mit."""

_SYSTEM_FOLDERS = ("/usr/local/sbin", "/usr/sbin", "/sbin")
_PLUGIN_FOLDERS = "/usr/lib"
_SECONDS = 30.0


def path_of(program: str) -> str | None:
    """The path of a program, also of one for administrators, or of a plugin of the SASL library."""
    if program.endswith(".so"):
        return next(map(str, Path(_PLUGIN_FOLDERS).glob(f"*/sasl2/{program}")), None)
    return shutil.which(program, path=os.pathsep.join((os.environ.get("PATH", os.defpath), *_SYSTEM_FOLDERS)))


def missing() -> str:
    """The reason why this machine has no realm; empty if it can have one."""
    packages = sorted({package for program, package in PROGRAMS.items() if path_of(program) is None})
    if packages:
        return f"no Kerberos (Debian, Ubuntu: apt-get install {' '.join(packages)})"
    if find_spec("gssapi") is None:
        return "the package gssapi is missing (make kerberos; it needs gcc and libkrb5-dev)"
    return ""


needs_kerberos = pytest.mark.skipif(bool(missing()), reason=missing() or "Kerberos is there")
needs_kerberos_plugin = pytest.mark.skipif(
    path_of(SASL_PLUGIN) is None or path_of("kcat") is None,
    reason="kcat without Kerberos (Debian, Ubuntu: apt-get install kcat libsasl2-modules-gssapi-mit)",
)


class Realm:
    """A KDC. `configuration` is the file for the Kerberos library of clients and brokers."""

    def __init__(self, folder: Path) -> None:
        """Makes the database and starts the KDC."""
        self.folder = folder
        self.configuration = folder / "krb5.conf"
        (port,) = free_ports(1)
        self.configuration.write_text(_client_configuration(folder, port))
        (folder / "kdc.conf").write_text(_server_configuration(folder, port))
        self.environment = {
            "KRB5_CONFIG": str(self.configuration),
            "KRB5_KDC_PROFILE": str(folder / "kdc.conf"),
            "KRB5CCNAME": f"FILE:{folder / 'tickets'}",
            "KRB5RCACHENAME": f"file2:{folder / 'replays'}",
        }
        self._run("kdb5_util", "create", "-s", "-P", "master-secret")
        self._port = port
        self._process: subprocess.Popen[bytes] | None = None
        self.start()

    def start(self) -> None:
        """Start the KDC, and return when it answers."""
        command = [path_of("krb5kdc") or "krb5kdc", "-n", "-r", REALM, "-P", str(self.folder / "pid")]
        with open(self.folder / "kdc.out", "ab") as output:
            self._process = subprocess.Popen(
                command, env={**os.environ, **self.environment}, stdin=subprocess.DEVNULL, stdout=output, stderr=output
            )
        process_guard().watch(self._process.pid)
        eventually(self._answers, _SECONDS, "the KDC listens")

    def stop(self) -> None:
        """End the KDC. Without effect if it does not run."""
        if self._process is not None:
            process_guard().end(self._process, signal.SIGTERM, _SECONDS)
            self._process = None

    def add(self, *principals: str) -> Path:
        """Add principals with random keys. Returns a keytab with all of them."""
        keytab = self.folder / f"{principals[0].replace('/', '-')}.keytab"
        commands = "".join(f"addprinc -randkey {each}\nktadd -k {keytab} {each}\n" for each in principals)
        self._run("kadmin.local", "-r", REALM, text=commands)
        assert keytab.exists(), f"kadmin.local added none of {principals}"
        return keytab

    def tickets(self, principal: str, keytab: Path, *, lifetime: str = "1h") -> Path:
        """A new ticket cache with a ticket of the principal."""
        cache = self.folder / f"{principal.replace('/', '-')}-{lifetime}.tickets"
        self._run("kinit", "-k", "-t", str(keytab), "-c", f"FILE:{cache}", "-l", lifetime, principal)
        return cache

    def _answers(self) -> bool:
        assert self._process is not None
        assert self._process.poll() is None, (self.folder / "kdc.out").read_text()
        with socket.socket() as probe:
            probe.settimeout(1)
            return probe.connect_ex(("127.0.0.1", self._port)) == 0

    def _run(self, program: str, *arguments: str, text: str = "") -> None:
        done = subprocess.run(
            [path_of(program) or program, *arguments],
            env={**os.environ, **self.environment},
            input=text,
            capture_output=True,
            text=True,
            timeout=_SECONDS,
            check=False,
        )
        assert done.returncode == 0, f"{program}: {done.stdout}{done.stderr}"


@contextmanager
def a_realm(folder: Path) -> Iterator[Realm]:
    """A running realm, for this process and for those that it starts."""
    realm = Realm(folder)
    try:
        with pytest.MonkeyPatch.context() as patch:
            for name, value in realm.environment.items():
                patch.setenv(name, value)
            yield realm
    finally:
        realm.stop()


def jaas(principal: str, keytab: Path, *, service: str = "kafka") -> str:
    """The JAAS entry of a broker or client with a keytab."""
    options = f'useKeyTab=true storeKey=true keyTab="{keytab}" principal="{principal}@{REALM}"'
    return f'com.sun.security.auth.module.Krb5LoginModule required {options} serviceName="{service}";'


def _client_configuration(folder: Path, port: int) -> str:
    return f"""
[libdefaults]
    default_realm = {REALM}
    dns_lookup_realm = false
    dns_lookup_kdc = false
    dns_canonicalize_hostname = false
    rdns = false
    udp_preference_limit = 1
    ticket_lifetime = 1h
[realms]
    {REALM} = {{
        kdc = 127.0.0.1:{port}
    }}
[domain_realm]
    localhost = {REALM}
[logging]
    kdc = FILE:{folder / "kdc.log"}
    default = FILE:{folder / "default.log"}
"""


def _server_configuration(folder: Path, port: int) -> str:
    return f"""
[kdcdefaults]
    kdc_listen = 127.0.0.1:{port}
    kdc_tcp_listen = 127.0.0.1:{port}
[realms]
    {REALM} = {{
        database_name = {folder / "principal"}
        key_stash_file = {folder / "stash"}
        acl_file = {folder / "kadm5.acl"}
        max_life = 1h
        max_renewable_life = 1h
        supported_enctypes = aes256-cts-hmac-sha1-96:normal
    }}
"""
