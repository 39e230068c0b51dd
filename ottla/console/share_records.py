"""Shows the records of a share group that are in flight, for the console."""

from __future__ import annotations

from typing import Final

from starlette.datastructures import QueryParams

from ottla.cli.shares.stored_records import stored_records
from ottla.client.cluster import Cluster
from ottla.console.parameters import BadParameter
from ottla.console.views import View

MOST_RANGES: Final = 1_000
"""Ranges of records with equal states that are shown of a partition."""


def share_records(cluster: Cluster, query: QueryParams) -> View:
    """The stored states of the records in flight, by partition. Raises BadParameter, ClientError."""
    group = query.get("group")
    if not group:
        raise BadParameter("group is missing")
    found = stored_records(cluster, group)
    return {
        "group": group,
        "partitions": [
            {**where._asdict(), **at._asdict(), "ranges": len(at.records), "records": [each._asdict() for each in at.records[:MOST_RANGES]]}
            for where, at in found.items()
        ],
    }
