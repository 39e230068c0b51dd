"""Measures decisions of the authorizer: `python -m benchmarks.paths.authorizing`.

Prints µs per decision with 0, 100 and 10,000 ACLs: one that the connection remembers, one that the authorizer remembers, and one that is
made from the ACLs. Absolute figures differ between machines; compare within one run.
"""

from functools import partial
from itertools import count

from benchmarks.paths.validation import microseconds
from ottla.broker.security.access import Access
from ottla.broker.security.acl_authorizer import AclAuthorizer
from ottla.broker.security.audit_log import AuditLog
from ottla.broker.security.client import Client
from ottla.broker.security.principals import Principal
from ottla.protocol.acls import AccessControlEntry, Operation, PatternType, PermissionType, ResourcePattern, ResourceType

COUNTS = (0, 100, 10_000)
ALICE = Principal("User", "alice")


def authorizer_with(acls: int) -> AclAuthorizer:
    """One with so many ACLs, half of them of prefixes in four lengths; the last allows everyone to read all topics."""
    authorizer = AclAuthorizer(allow_without_acls=True, audit_log=AuditLog(lambda host, line: None))
    for number in range(acls - 1):
        name = f"{'team-' * (number % 8 // 2 + 1)}{number}"
        pattern = PatternType.LITERAL if number % 2 else PatternType.PREFIXED
        entry = AccessControlEntry(f"User:u{number % 100}", "*", Operation.READ, PermissionType.ALLOW)
        authorizer.set_acls(ResourcePattern(ResourceType.TOPIC, name, pattern), [entry])
    if acls:
        entry = AccessControlEntry("User:*", "*", Operation.READ, PermissionType.ALLOW)
        authorizer.set_acls(ResourcePattern(ResourceType.TOPIC, "*", PatternType.LITERAL), [entry])
    return authorizer


def costs_with(acls: int) -> tuple[float, float, float]:
    """µs per decision: remembered by the connection, by the authorizer, by neither."""
    authorizer = authorizer_with(acls)
    access = Access(authorizer, Client("c", "10.0.0.1", 1, "PLAINTEXT", principal=ALICE))
    names = map("team-team-orders-{}".format, count())

    def ask(name: str) -> bool:
        return authorizer.is_authorized(ALICE, "10.0.0.1", Operation.READ, ResourceType.TOPIC, name)

    assert access.may(Operation.READ, ResourceType.TOPIC, "orders")
    return (
        microseconds(partial(access.may, int(Operation.READ), int(ResourceType.TOPIC), "orders")),
        microseconds(partial(ask, "orders")),
        microseconds(lambda: ask(next(names))),
    )


def main() -> None:
    """Print the table."""
    print(f"{'ACLs':>8}{'by the connection':>22}{'by the authorizer':>22}{'from the ACLs':>22}")
    for acls in COUNTS:
        print(f"{acls:>8,}" + "".join(f"{cost:>19.2f} µs" for cost in costs_with(acls)))


if __name__ == "__main__":
    main()
