"""Declares the panels of the dashboards, the alerts and the recording rules.

Expressions are in PromQL. Every metric in them must be one that the broker or the Python client library exports; `ottla.dashboards.files`
refuses others, so a renamed metric cannot leave an empty panel behind. `$instance`, `$topic` and `$group` are the variables of a dashboard.
"""

from __future__ import annotations

from typing import Final, NamedTuple


class Panel(NamedTuple):
    """One graph. `legend` is Grafana's template for the name of a series; `unit` is Grafana's name of a unit."""

    title: str
    legend: str
    unit: str
    expressions: tuple[str, ...]


class Dashboard(NamedTuple):
    """One page. `variables`: name -> (metric, label) whose values it offers."""

    uid: str
    title: str
    variables: dict[str, tuple[str, str]]
    panels: tuple[Panel, ...]


class Alert(NamedTuple):
    """One alert. `lasts` is how long the expression must hold."""

    name: str
    expression: str
    lasts: str
    severity: str
    summary: str
    description: str


_INSTANCE: Final = {"instance": ("kafka_server_kafkaserver_brokerstate", "instance")}


def _panel(title: str, legend: str, unit: str, *expressions: str) -> Panel:
    return Panel(title, legend, unit, expressions)


def _rate(metric: str, by: str, matching: str = 'instance=~"$instance"') -> str:
    return f"sum by ({by}) (rate({metric}{{{matching}}}[$__rate_interval]))"


def _request_time(station: str) -> str:
    matching = 'instance=~"$instance",request=~"Produce|FetchConsumer|FetchFollower",quantile="0.99"'
    return f"max by (request) (kafka_network_requestmetrics_{station}timems{{{matching}}})"


_OF_INSTANCE: Final = '{instance=~"$instance"}'
_SOFTWARE: Final = "clientSoftwareName, clientSoftwareVersion"
_POOL: Final = "org_apache_kafka_storage_internals_log_remotestoragethreadpool"
_OF_TOPIC: Final = 'topic=~"$topic",topic!=""'


def _remote(metric: str) -> str:
    return f"sum by (topic) (kafka_server_brokertopicmetrics_{metric}{{{_OF_TOPIC}}})"


def _remote_rate(metric: str) -> str:
    return _rate(f"kafka_server_brokertopicmetrics_{metric}", "topic", _OF_TOPIC)


LAG: Final = (
    "clamp_min(max by (topic, partition) (kafka_log_log_logendoffset) - on (topic, partition) group_right () "
    "max by (group, topic, partition) (ottla_group_committed_offset), 0)"
)
"""Records behind a committed offset, for all partitions of the cluster; the end of a log is its leader's, the largest."""

_LAG_OF_GROUP: Final = LAG.replace("ottla_group_committed_offset", 'ottla_group_committed_offset{group=~"$group"}')

DASHBOARDS: Final = (
    Dashboard(
        "ottla-overview",
        "Ottla: overview",
        {},
        (
            _panel("Brokers alive", "brokers", "short", "max(kafka_controller_kafkacontroller_activebrokercount)"),
            _panel("Active controllers", "controllers", "short", "sum(kafka_controller_kafkacontroller_activecontrollercount)"),
            _panel("Partitions without a leader", "offline", "short", "max(kafka_controller_kafkacontroller_offlinepartitionscount)"),
            _panel(
                "Replicas in trouble",
                "{{instance}}",
                "short",
                "sum by (instance) (kafka_server_replicamanager_underreplicatedpartitions)",
                "sum by (instance) (kafka_server_replicamanager_offlinereplicacount)",
                "sum by (instance) (kafka_server_replicamanager_underminisrpartitioncount)",
            ),
            _panel("Records in", "{{instance}}", "cps", _rate("kafka_server_brokertopicmetrics_messagesin_total", "instance", 'topic=""')),
            _panel("Bytes in", "{{instance}}", "Bps", _rate("kafka_server_brokertopicmetrics_bytesin_total", "instance", 'topic=""')),
            _panel("Bytes out", "{{instance}}", "Bps", _rate("kafka_server_brokertopicmetrics_bytesout_total", "instance", 'topic=""')),
            _panel(
                "Idle part of the event loop",
                "{{instance}}",
                "percentunit",
                "kafka_server_kafkarequesthandlerpool_requesthandleravgidlepercent",
            ),
            _panel("Delay of the event loop, p99.9", "{{instance}}", "s", 'ottla_event_loop_lag_seconds{quantile="0.999"}'),
            _panel("Disk space of logs", "{{instance}}", "bytes", "sum by (instance) (kafka_log_log_size)"),
            _panel("Failed log directories", "{{instance}}", "short", "kafka_log_logmanager_offlinelogdirectorycount"),
            _panel(
                "Topics and partitions",
                "",
                "short",
                "max(kafka_controller_kafkacontroller_globaltopiccount)",
                "max(kafka_controller_kafkacontroller_globalpartitioncount)",
            ),
        ),
    ),
    Dashboard(
        "ottla-broker",
        "Ottla: broker",
        _INSTANCE,
        (
            _panel("Requests", "{{request}}", "reqps", _rate("kafka_network_requestmetrics_requests_total", "request")),
            _panel(
                "Errors in answers",
                "{{request}} {{error}}",
                "cps",
                _rate("kafka_network_requestmetrics_errors_total", "request, error", 'instance=~"$instance",error!="NONE"'),
            ),
            _panel("Total time, p99", "{{request}}", "ms", _request_time("total")),
            _panel("Time in the request queue, p99", "{{request}}", "ms", _request_time("requestqueue")),
            _panel("Time in the handler, p99", "{{request}}", "ms", _request_time("local")),
            _panel("Time waiting for replicas or records, p99", "{{request}}", "ms", _request_time("remote")),
            _panel("Time until the answer is written, p99", "{{request}}", "ms", _request_time("responsequeue")),
            _panel("Time until the answer is sent, p99", "{{request}}", "ms", _request_time("responsesend")),
            _panel(
                "Requests that wait",
                "{{delayedOperation}}",
                "short",
                f"sum by (delayedOperation) (kafka_server_delayedoperationpurgatory_purgatorysize{_OF_INSTANCE})",
            ),
            _panel("Request queue", "{{instance}}", "short", f"kafka_network_requestchannel_requestqueuesize{_OF_INSTANCE}"),
            _panel(
                "Processor time",
                "{{instance}}",
                "percentunit",
                f"rate(process_cpu_seconds_total{_OF_INSTANCE}[$__rate_interval])",
                f"rate(ottla_event_loop_cpu_seconds_total{_OF_INSTANCE}[$__rate_interval])",
            ),
            _panel("Memory", "{{instance}}", "bytes", f"process_resident_memory_bytes{_OF_INSTANCE}"),
            _panel("Open files", "{{instance}}", "short", f"process_open_fds{_OF_INSTANCE}", f"process_max_fds{_OF_INSTANCE}"),
            _panel(
                "Flushes, p99", "{{instance}}", "ms", 'kafka_log_logflushstats_logflushrateandtimems{instance=~"$instance",quantile="0.99"}'
            ),
            _panel(
                "Controller events that wait",
                "{{instance}}",
                "short",
                f"kafka_controller_controllereventmanager_eventqueuesize{_OF_INSTANCE}",
            ),
            _panel(
                "Changes of ISRs",
                "{{instance}}",
                "cps",
                _rate("kafka_server_replicamanager_isrshrinks_total", "instance"),
                _rate("kafka_server_replicamanager_isrexpands_total", "instance"),
            ),
        ),
    ),
    Dashboard(
        "ottla-topics",
        "Ottla: topics",
        {"topic": ("kafka_log_log_size", "topic")},
        (
            _panel("Records in", "{{topic}}", "cps", _rate("kafka_server_brokertopicmetrics_messagesin_total", "topic", _OF_TOPIC)),
            _panel("Bytes in", "{{topic}}", "Bps", _rate("kafka_server_brokertopicmetrics_bytesin_total", "topic", _OF_TOPIC)),
            _panel("Bytes out", "{{topic}}", "Bps", _rate("kafka_server_brokertopicmetrics_bytesout_total", "topic", _OF_TOPIC)),
            _panel(
                "Failed requests",
                "{{topic}}",
                "cps",
                _rate("kafka_server_brokertopicmetrics_failedproducerequests_total", "topic", _OF_TOPIC),
                _rate("kafka_server_brokertopicmetrics_failedfetchrequests_total", "topic", _OF_TOPIC),
            ),
            _panel("Size, all replicas", "{{topic}}", "bytes", f"sum by (topic) (kafka_log_log_size{{{_OF_TOPIC}}})"),
            _panel("Segments", "{{topic}}", "short", f"sum by (topic) (kafka_log_log_numlogsegments{{{_OF_TOPIC}}})"),
            _panel(
                "Under-replicated partitions",
                "{{topic}}",
                "short",
                f"sum by (topic) (kafka_cluster_partition_underreplicated{{{_OF_TOPIC}}})",
            ),
            _panel(
                "Partitions under min.insync.replicas",
                "{{topic}}",
                "short",
                f"sum by (topic) (kafka_cluster_partition_underminisr{{{_OF_TOPIC}}})",
            ),
            _panel(
                "Records behind the last stable offset",
                "{{topic}}",
                "short",
                f"sum by (topic) (kafka_cluster_partition_laststableoffsetlag{{{_OF_TOPIC}}})",
            ),
        ),
    ),
    Dashboard(
        "ottla-remote",
        "Ottla: tiered storage",
        {"topic": ("kafka_server_brokertopicmetrics_remotelogsizebytes", "topic")},
        (
            _panel("Bytes in the store", "{{topic}}", "bytes", _remote("remotelogsizebytes")),
            _panel("Bytes to copy", "{{topic}}", "bytes", _remote("remotecopylagbytes")),
            _panel("Segments to copy", "{{topic}}", "short", _remote("remotecopylagsegments")),
            _panel("Bytes to remove", "{{topic}}", "bytes", _remote("remotedeletelagbytes")),
            _panel("Copied", "{{topic}}", "Bps", _remote_rate("remotecopybytes_total")),
            _panel("Read from the store", "{{topic}}", "Bps", _remote_rate("remotefetchbytes_total")),
            _panel("Reads, each a request to the store", "{{topic}}", "cps", _remote_rate("remotefetchrequests_total")),
            _panel(
                "Failures",
                "{{topic}}",
                "cps",
                _remote_rate("remotecopyerrors_total"),
                _remote_rate("remotefetcherrors_total"),
                _remote_rate("remotedeleteerrors_total"),
            ),
            _panel("Reads that wait", "{{instance}}", "short", f"{_POOL}_remotelogreadertaskqueuesize"),
            _panel("Records in the cache", "{{instance}}", "bytes", "ottla_remote_chunk_cache_bytes"),
            _panel("Memory of transfers", "{{instance}}", "bytes", "ottla_remote_memory_bytes"),
            _panel("Stores that do not answer", "{{instance}}", "short", "ottla_remote_store_degraded"),
            _panel("Segments that cannot be read", "{{instance}}", "short", "ottla_remote_unreadable_segments"),
            _panel("Segments of lost logs", "{{instance}}", "short", "ottla_remote_lost_log_segments"),
            _panel("Offsets that are nowhere", "{{instance}}", "short", "ottla_remote_missing_offsets"),
        ),
    ),
    Dashboard(
        "ottla-groups",
        "Ottla: groups (ottla.group.lag.max.series)",
        {"group": ("ottla_group_committed_offset", "group")},
        (
            _panel("Lag", "{{group}} {{topic}}", "short", f"sum by (group, topic) ({_LAG_OF_GROUP})"),
            _panel(
                "Consumed",
                "{{group}} {{topic}}",
                "cps",
                'sum by (group, topic) (rate(ottla_group_committed_offset{group=~"$group"}[$__rate_interval]))',
            ),
            _panel("Offsets that are not shown", "{{instance}}", "short", "ottla_group_offsets_not_shown"),
            _panel(
                "Groups by state",
                "",
                "short",
                "sum(kafka_coordinator_group_groupmetadatamanager_numgroupsstable)",
                "sum(kafka_coordinator_group_groupmetadatamanager_numgroupsempty)",
                "sum(kafka_coordinator_group_groupmetadatamanager_numgroupspreparingrebalance)",
            ),
            _panel(
                "Transactions",
                "",
                "cps",
                "sum(rate(ottla_transaction_commits_total[$__rate_interval]))",
                "sum(rate(ottla_transaction_aborts_total[$__rate_interval]))",
                "sum(rate(ottla_transaction_timeouts_total[$__rate_interval]))",
            ),
        ),
    ),
    Dashboard(
        "ottla-clients",
        "Ottla: clients",
        _INSTANCE,
        (
            _panel(
                "Connections",
                "{{listener}}",
                "short",
                f"sum by (listener) (kafka_server_socket_server_metrics_connection_count{_OF_INSTANCE})",
            ),
            _panel(
                "New connections", "{{listener}}", "cps", _rate("kafka_server_socket_server_metrics_connection_creation_total", "listener")
            ),
            _panel(
                "Closed connections", "{{listener}}", "cps", _rate("kafka_server_socket_server_metrics_connection_close_total", "listener")
            ),
            _panel(
                "Client software",
                "{{clientSoftwareName}} {{clientSoftwareVersion}}",
                "short",
                f"sum by ({_SOFTWARE}) (kafka_server_socket_server_metrics_connections_software{_OF_INSTANCE})",
            ),
            _panel("Fetch sessions", "{{instance}}", "short", f"kafka_server_fetchsessioncache_numincrementalfetchsessions{_OF_INSTANCE}"),
            _panel(
                "Versions of requests",
                "{{request}} {{version}}",
                "reqps",
                _rate("kafka_network_requestmetrics_requests_total", "request, version"),
            ),
        ),
    ),
)

RECORDING_RULES: Final = {"kafka_consumergroup_lag": f'label_replace({LAG}, "consumergroup", "$1", "group", "(.*)")'}
"""Name of the series -> expression. The usual exporters of consumer lag have this name and these labels."""

ALERTS: Final = (
    Alert(
        "OttlaNoBroker",
        "absent(kafka_server_kafkaserver_brokerstate)",
        "1m",
        "critical",
        "Prometheus reads the metrics of no broker",
        "All brokers are down, or their metrics cannot be reached. The other alerts see nothing then.",
    ),
    Alert(
        "OttlaPartitionsOffline",
        "max(kafka_controller_kafkacontroller_offlinepartitionscount) > 0",
        "1m",
        "critical",
        "{{ $value }} partitions have no leader",
        "Their records can be neither written nor read. Look for stopped brokers and failed log directories.",
    ),
    Alert(
        "OttlaNoController",
        "sum(kafka_controller_kafkacontroller_activecontrollercount) != 1",
        "1m",
        "critical",
        "The cluster has {{ $value }} active controllers instead of one",
        "Without a controller no leader is elected and no topic is created.",
    ),
    Alert(
        "OttlaLogDirectoryFailed",
        "kafka_log_logmanager_offlinelogdirectorycount > 0",
        "0m",
        "critical",
        "{{ $value }} log directories of {{ $labels.instance }} failed",
        "The log names the reason. Repair the disk, then start the broker again.",
    ),
    Alert(
        "OttlaUnderMinIsr",
        "sum by (instance) (kafka_server_replicamanager_underminisrpartitioncount) > 0",
        "1m",
        "critical",
        "{{ $value }} partitions led by {{ $labels.instance }} have too few replicas in sync",
        "Producers with acks=all are refused. Start the missing brokers.",
    ),
    Alert(
        "OttlaUnderReplicated",
        "sum by (instance) (kafka_server_replicamanager_underreplicatedpartitions) > 0",
        "10m",
        "warning",
        "{{ $value }} partitions led by {{ $labels.instance }} are under-replicated",
        "A broker is down, or followers are too slow.",
    ),
    Alert(
        "OttlaCoreNearlyUsedUp",
        "kafka_server_kafkarequesthandlerpool_requesthandleravgidlepercent < 0.3",
        "10m",
        "warning",
        "The event loop of {{ $labels.instance }} is idle for only {{ $value | humanizePercentage }} of the time",
        "Spread partitions over more brokers.",
    ),
    Alert(
        "OttlaEventLoopStalls",
        'ottla_event_loop_lag_seconds{quantile="0.999"} > 0.5',
        "5m",
        "warning",
        "All clients of {{ $labels.instance }} wait up to {{ $value }} s",
        "One piece of work takes this long. ottla.slow.request.ms shows which requests are affected.",
    ),
    Alert(
        "OttlaLateTransactions",
        "kafka_server_replicamanager_partitionswithlatetransactionscount > 0",
        "5m",
        "warning",
        "Open transactions hold the readers of {{ $value }} partitions of {{ $labels.instance }} back",
        "See docs/operations.md: What holds the last stable offset back.",
    ),
    Alert(
        "OttlaCleanerGaveUp",
        "sum by (instance) (kafka_log_logcleanermanager_uncleanable_partitions_count) > 0",
        "0m",
        "warning",
        "{{ $value }} compacted partitions of {{ $labels.instance }} are not compacted any more",
        "The log has a line for each: it cannot be cleaned and will grow.",
    ),
    Alert(
        "OttlaRemoteCopiesFail",
        'sum by (instance) (increase(kafka_server_brokertopicmetrics_remotecopyerrors_total{topic=""}[10m])) > 0',
        "30m",
        "critical",
        "{{ $labels.instance }} cannot copy segments to the remote store",
        "Its disks fill. See docs/operations.md: When the remote store fails.",
    ),
    Alert(
        "OttlaRemoteCopiesBehind",
        'sum by (instance) (min_over_time(kafka_server_brokertopicmetrics_remotecopylagsegments{topic=""}[1h])) > 20',
        "0m",
        "warning",
        "{{ $value }} segments of {{ $labels.instance }} wait for their copies",
        "Disks fill. See docs/operations.md: When the remote store fails.",
    ),
    Alert(
        "OttlaRemoteStoreDegraded",
        "ottla_remote_store_degraded > 0",
        "5m",
        "warning",
        "The remote store does not answer {{ $labels.instance }}",
        "Old records cannot be read, and disks fill. See docs/operations.md: When the remote store fails.",
    ),
    Alert(
        "OttlaRemoteReadsFail",
        'sum by (instance) (increase(kafka_server_brokertopicmetrics_remotefetcherrors_total{topic=""}[5m])) > 0',
        "5m",
        "warning",
        "{{ $labels.instance }} cannot read records from the remote store",
        "Consumers of old records wait. See docs/operations.md: When the remote store fails.",
    ),
    Alert(
        "OttlaRemoteLogLost",
        "ottla_remote_lost_log_segments > 0",
        "0m",
        "critical",
        "The remote store has {{ $value }} segments of logs that {{ $labels.instance }} lost",
        "See docs/operations.md: Bringing a topic back from the store.",
    ),
    Alert(
        "OttlaRemoteRecordsMissing",
        "ottla_remote_missing_offsets > 0",
        "0m",
        "critical",
        "Neither {{ $labels.instance }} nor the remote store has {{ $value }} offsets",
        "Consumers stop there. See docs/operations.md: When the remote store fails.",
    ),
    Alert(
        "OttlaRemoteMetadataUnread",
        "ottla_remote_log_metadata_unread_partitions > 0 or ottla_remote_log_metadata_troubled_partitions > 0",
        "5m",
        "warning",
        "{{ $labels.instance }} does not know the segments of {{ $value }} partitions in the remote store",
        "Nothing of theirs is copied. Look for leaders of __remote_log_metadata that are missing.",
    ),
    Alert(
        "OttlaUncleanElection",
        "increase(kafka_controller_controllerstats_uncleanleaderelections_total[10m]) > 0",
        "0m",
        "warning",
        "Unclean leader elections",
        "Acknowledged records may be lost.",
    ),
    Alert(
        "OttlaFilesNearlyUsedUp",
        "process_open_fds / process_max_fds > 0.75",
        "10m",
        "warning",
        "{{ $labels.instance }} has {{ $value | humanizePercentage }} of its files open",
        "Raise the limit of open files, or lower max.connections.",
    ),
)
