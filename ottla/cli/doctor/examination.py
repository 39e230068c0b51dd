"""Runs the checks of a host or of a cluster, in the order of the report."""

import random
from collections.abc import Sequence

from ottla.cli.doctor.cluster_checks import check_cluster
from ottla.cli.doctor.cluster_facts import gather
from ottla.cli.doctor.configuration_checks import check_certificates, check_keys, check_metadata, check_start
from ottla.cli.doctor.directory_checks import DirectoryFacts, compare, examine
from ottla.cli.doctor.host import Host
from ottla.cli.doctor.host_checks import check_clock, check_flushes, check_limits, check_mount, check_names, check_space
from ottla.cli.doctor.kinds import Finding, found
from ottla.cli.doctor.remote_checks import check_remote_store
from ottla.client.cluster import Cluster
from ottla.client.errors import ClientError, NotAuthenticated
from ottla.config.broker import BrokerConfig
from ottla.config.keys.general import BROKER_ID
from ottla.config.keys.log import LOG_DIRS
from ottla.config.validation import log_dirs
from ottla.protocol.client_security import PLAINTEXT, ClientSecurity


def examine_broker(config: BrokerConfig, host: Host, dice: random.Random) -> list[Finding]:
    """Examine a broker of this host by its configuration."""
    findings = list(check_keys(config))
    refused = list(check_start(config))
    findings += refused
    findings += check_certificates(config, host.now())
    findings += check_names(host, config)
    directories = _examine(log_dirs(config[LOG_DIRS]), host, findings, dice)
    findings += compare(directories, config[BROKER_ID] if config[BROKER_ID] >= 0 else None)
    if config.standalone or not refused:  # the login at ZooKeeper may be the fault
        findings += check_metadata(config, directories)
    if not refused:
        findings += check_remote_store(config)
    return findings


def examine_directories(paths: Sequence[str], host: Host, dice: random.Random) -> list[Finding]:
    """Examine log directories alone, which belong to one broker."""
    findings: list[Finding] = []
    findings += compare(_examine(paths, host, findings, dice), None)
    return findings


def examine_cluster(bootstrap: str, timeout_seconds: float, security: ClientSecurity = PLAINTEXT) -> tuple[list[Finding], list[str]]:
    """Examine a cluster; also a line for each part that could not be examined. Raises ClientError for malformed addresses."""
    with Cluster(bootstrap, timeout_seconds=timeout_seconds, security=security) as cluster:
        try:
            facts = gather(cluster)
        except ClientError as error:
            reason = " ".join(str(error).split())
            refused = isinstance(error, NotAuthenticated)
            remedy = "correct --command-config" if refused else "start the brokers, or correct --bootstrap-server"
            return [found("cluster-unreachable", f"{bootstrap}: {reason}", remedy)], []
    return list(check_cluster(facts)), facts.not_examined


def _examine(paths: Sequence[str], host: Host, findings: list[Finding], dice: random.Random) -> list[DirectoryFacts]:
    directories = [each for path in paths if (each := examine(path, host, findings, dice)) is not None]
    for each in directories:
        findings += check_mount(host, each.path)
        findings += check_space(host, each.path)
        findings += check_flushes(host, each.path)
    pid = next((each.pid for each in directories if each.pid is not None), None)
    findings += check_limits(host, pid, len(directories), sum(len(each.segments) for each in directories))
    findings += check_clock(host)
    return directories
