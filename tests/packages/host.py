"""Knows how this host reaches Debian's archive and the index of Python packages, so that a new root reaches them in the same way."""

import os
import re
import shutil
import subprocess
from pathlib import Path

SUITE = "bookworm"
"""The release of Debian that the Dockerfile names, and for which the package is built."""
VARIABLES = (
    "PIP_INDEX_URL",
    "PIP_EXTRA_INDEX_URL",
    "PIP_TRUSTED_HOST",
    "PIP_DEFAULT_TIMEOUT",
    "PIP_RETRIES",
    "http_proxy",
    "https_proxy",
    "no_proxy",
    "HTTP_PROXY",
    "HTTPS_PROXY",
    "NO_PROXY",
    "OTTLA_PURE_PYTHON",
)
IS_COMPILED = not os.environ.get("OTTLA_PURE_PYTHON")
"""Whether what these tests build has compiled modules."""
CERTIFICATES = ("PIP_CERT", "SSL_CERT_FILE", "REQUESTS_CA_BUNDLE")
CERTIFICATES_OF_HOST = "/usr/local/share/certificates-of-the-host.crt"
"""A path in a root that no package of Debian writes: ca-certificates replaces the usual file."""
APT_SETTING = re.compile(r'Acquire::(?:https?|Check-[\w-]+|Retries)\b.* ".+";')


def mirror() -> list[str]:
    """The archive as an argument of debootstrap. Empty on a host that is no Debian: debootstrap has a default."""
    said = _said_by("apt-get", "indextargets", "--format", "$(CODENAME) $(COMPONENT) $(REPO_URI)", "Created-By: Packages")
    found = re.search(rf"^(?:{SUITE}|trixie|bullseye) main (\S+)$", said, flags=re.MULTILINE)
    return [] if found is None else [found[1]]


def apt_settings() -> str:
    """Proxies and checks of this host's apt, in the form of a file in apt.conf.d. Empty on a host that is no Debian."""
    said = _said_by("apt-config", "dump")
    return "".join(f"{line}\n" for line in said.splitlines() if APT_SETTING.fullmatch(line))


def certificates() -> bytes | None:
    """The authorities that this host was told to trust, or None."""
    for name in CERTIFICATES:
        if os.environ.get(name):
            return Path(os.environ[name]).read_bytes()
    return None


def environment() -> dict[str, str]:
    """The variables for steps that need the network."""
    found = {name: os.environ[name] for name in VARIABLES if name in os.environ}
    if certificates() is not None:
        found |= dict.fromkeys(CERTIFICATES, CERTIFICATES_OF_HOST)
    return found


def _said_by(*command: str) -> str:
    """What a program of apt prints; nothing where it is missing."""
    if shutil.which(command[0]) is None:
        return ""
    return subprocess.run(command, capture_output=True, text=True, check=False).stdout
