"""Makes the salts of SCRAM credentials (AlterUserScramCredentials, KIP-554), which clients choose."""

from typing import Final

SALT_BYTES: Final = 17
"""Random bytes from which `salt_of` makes a salt."""
_SALT_BITS: Final = 130
_DIGITS: Final = "0123456789abcdefghijklmnopqrstuvwxyz"


def salt_of(random: bytes) -> bytes:
    """A salt in the form of Kafka's tools, a number in base 36, from SALT_BYTES bytes.

    All salts that are made here have this form. Otherwise the salt of an unknown user would look unlike those of users.
    """
    number = int.from_bytes(random, "big") >> 8 * SALT_BYTES - _SALT_BITS
    digits = ""
    while number:
        number, digit = divmod(number, len(_DIGITS))
        digits = _DIGITS[digit] + digits
    return (digits or "0").encode()
