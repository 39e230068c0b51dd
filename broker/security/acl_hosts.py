"""Writes addresses as Java does, in which form ACLs and logs of Apache Kafka have them, and compares the hosts of ACLs as addresses."""

from ipaddress import IPv6Address, ip_address


def java_host(host: str) -> str:
    """The address as Java writes it, and ACLs with it: IPv6 without `::`, mapped IPv4 as IPv4."""
    if ":" not in host:
        return host
    address, percent, scope = host.partition("%")
    parsed = IPv6Address(address)
    if parsed.ipv4_mapped is not None:
        return str(parsed.ipv4_mapped)
    return ":".join(f"{int(group, 16):x}" for group in parsed.exploded.split(":")) + percent + scope


def without_scope(host: str) -> str:
    """The address without the interface on which it is link-local. A text that is no address of IPv6 stays as it is."""
    address = host.partition("%")[0]
    return address if ":" in address else host


def comparable_host(host: str) -> str:
    """The host of an ACL as `java_host` writes the same address; a text that is no address, such as `*`, as it is."""
    try:
        return java_host(str(ip_address(host)))
    except ValueError:
        return host
