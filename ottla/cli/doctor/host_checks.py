"""Judges the host of a broker: limits, mounts, space, flush times, the clock, and the names that it advertises."""

import ipaddress
from collections.abc import Iterable, Sequence
from shlex import quote

from ottla.cli.doctor.host import Host
from ottla.cli.doctor.kinds import Finding, found
from ottla.config.broker import BrokerConfig

FILES_OF_A_DIRECTORY = 32
"""Files that a broker creates ahead for each log directory."""
EXPECTED_CONNECTIONS = 1000
MAPS_OF_A_SEGMENT = 2
OTHER_MAPS = 1000
NEARLY_FULL, FULL = 0.15, 0.05
"""Free shares of a file system."""
SLOW_FLUSH_SECONDS = 0.05
NETWORK_FILE_SYSTEMS = frozenset({"nfs", "nfs4", "cifs", "smb3", "9p", "fuse.sshfs", "ceph", "glusterfs"})
IN_MEMORY = frozenset({"tmpfs", "ramfs"})


def check_limits(host: Host, pid: int | None, directories: int, segments: int) -> Iterable[Finding]:
    """The limits of the broker's process, or of a new one, against the number of its segments."""
    files = host.open_files(pid)
    wanted = EXPECTED_CONNECTIONS + segments + FILES_OF_A_DIRECTORY * directories
    if files is not None and files < wanted:
        yield found(
            "open-files-limit",
            f"at most {files} files can be open, and {segments} segments with {EXPECTED_CONNECTIONS} connections take {wanted}",
            f"ulimit -n {wanted}, or LimitNOFILE={wanted} in the unit of systemd; then restart the broker",
        )
    maps = host.memory_maps()
    wanted = MAPS_OF_A_SEGMENT * segments + OTHER_MAPS
    if maps is not None and maps < wanted:
        yield found(
            "memory-maps-limit",
            f"vm.max_map_count is {maps}, and {segments} segments may take {wanted}",
            f"sysctl -w vm.max_map_count={wanted}",
        )


def check_mount(host: Host, path: str) -> Iterable[Finding]:
    """The mount of one log directory."""
    mount = host.mount(path)
    if mount is None:
        return
    where = f"{path} is on {mount.point} ({mount.kind})"
    if "ro" in mount.options:
        yield found("mount-read-only", f"{where}, which is mounted read-only", f"mount -o remount,rw {quote(mount.point)}")
    if mount.kind in IN_MEMORY:
        yield found("mount-in-memory", where, "set log.dirs to a directory on a disk")
    elif mount.kind in NETWORK_FILE_SYSTEMS:
        yield found("mount-network", where, "set log.dirs to a directory on a local disk")
    elif not mount.options & {"noatime", "relatime"}:
        yield found("mount-atime", f"{where}, mounted without noatime", f"mount -o remount,noatime {quote(mount.point)}")
    if mount.options & {"sync", "dirsync"}:
        yield found("mount-synchronous", f"{where}, mounted with sync", f"mount -o remount,async {quote(mount.point)}")


def check_space(host: Host, path: str) -> Iterable[Finding]:
    """The free space for one log directory."""
    space = host.space(path)
    if space is None or not space.total:
        return
    share = space.free / space.total
    inodes = space.free_inodes / space.total_inodes if space.total_inodes else 1.0
    if min(share, inodes) < NEARLY_FULL:
        kind = "disk-full" if min(share, inodes) < FULL else "disk-nearly-full"
        what = f"{path} has {share:.0%} of its bytes ({space.free // 2**20} MiB) and {inodes:.0%} of its inodes free"
        yield found(kind, what, "ottla configs alter topic NAME --set retention.bytes=BYTES, or move replicas: ottla topics reassign")


def check_flushes(host: Host, path: str) -> Iterable[Finding]:
    """The time of a flush in one log directory."""
    seconds = host.flush_seconds(path)
    if seconds is not None and seconds > SLOW_FLUSH_SECONDS:
        yield found(
            "fsync-slow",
            f"a write of 4 KiB to {path} takes {seconds * 1000:.0f} ms until it is on the disk (the median of ten)",
            "iostat -x 1 shows the load of the disk; set log.dirs to a faster one",
        )


def check_clock(host: Host) -> Iterable[Finding]:
    """Whether a time server sets the clock."""
    if host.is_clock_synchronised() is False:
        yield found("clock-unsynchronised", "the kernel reports that no time server sets its clock", "timedatectl set-ntp true")


def check_names(host: Host, config: BrokerConfig) -> Iterable[Finding]:
    """The names in advertised.listeners, in both directions."""
    bound = {endpoint.listener_name: endpoint.host for endpoint in config.listeners.listeners}
    for endpoint in config.listeners.advertised:
        name = endpoint.host or host.own_name()
        addresses = [name] if _is_address(name) else host.addresses(name)
        where = f"listener {endpoint.listener_name} advertises {name}"
        change = "set advertised.listeners to a name that clients can resolve"
        if not addresses:
            yield found("name-unresolved", f"{where}, which this host cannot resolve", f"getent hosts {quote(name)}; {change}")
            continue
        if any(_is_loopback(address) for address in addresses) and not _is_loopback(bound.get(endpoint.listener_name, name), host):
            yield found("name-loopback", f"{where} ({', '.join(addresses)}), and listens on other addresses", change)
        elif not _is_address(name) and (lost := _lost(host, addresses)):
            yield found(
                "name-not-reversible", f"{where}, and {', '.join(lost)} has no name that leads back", f"add a PTR record for {lost[0]}"
            )


def _lost(host: Host, addresses: Sequence[str]) -> list[str]:
    """The addresses whose name does not lead back to them."""
    return [address for address in addresses if (name := host.name_of(address)) is None or address not in host.addresses(name)]


def _is_address(text: str) -> bool:
    try:
        ipaddress.ip_address(text)
    except ValueError:
        return False
    return True


def _is_loopback(text: str, host: Host | None = None) -> bool:
    """Whether an address, or all addresses of a name, are of this host alone."""
    if _is_address(text):
        return ipaddress.ip_address(text).is_loopback
    addresses = host.addresses(text) if host is not None and text else []
    return bool(addresses) and all(_is_loopback(address) for address in addresses)
