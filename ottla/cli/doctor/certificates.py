"""Judges how long a certificate is still valid."""

from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Final

from ottla.cli.doctor.kinds import Finding, found

SOON_DAYS: Final = 30
_DAY_SECONDS: Final = 86_400
_UTC_TIME: Final = 0x17
_VERSION: Final = 0xA0
_VALIDITY: Final = 3
"""Place of the validity in a certificate, after its version (RFC 5280)."""


def check_end(whose: str, ends_at: float, now: float) -> Iterator[Finding]:
    """The finding about a certificate that ends soon, or has ended. `whose` is its subject; times are seconds since the epoch."""
    days = (ends_at - now) / _DAY_SECONDS
    if days < SOON_DAYS:
        yield found(
            "certificate-expired" if days < 0 else "certificate-expires",
            f"the certificate of {whose} ends at {datetime.fromtimestamp(ends_at, UTC):%Y-%m-%d %H:%M} UTC",
            "renew it in ssl.keystore.location, then set the key again with ottla configs alter broker",
        )


def end_of(certificate: bytes) -> float:
    """The time after which a certificate in DER is invalid, seconds since the epoch. Raises MalformedDer, ValueError."""
    from ottla.broker.security.tls.der import MalformedDer, element

    fields = element(certificate).part(0).parts()
    if fields and fields[0].tag == _VERSION:
        del fields[0]
    if len(fields) <= _VALIDITY or len(fields[_VALIDITY].parts()) != 2:
        raise MalformedDer("a certificate has no validity")
    end = fields[_VALIDITY].part(1)
    text = end.content.decode("ascii")
    if end.tag == _UTC_TIME:
        text = ("20" if text < "50" else "19") + text
    return datetime.strptime(text, "%Y%m%d%H%M%SZ").replace(tzinfo=UTC).timestamp()
