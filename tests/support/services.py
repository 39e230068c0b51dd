"""Builds the `Services` of a broker of which only some parts exist."""

from __future__ import annotations

from typing import Any, TypeVar

from ottla.broker.request.services import AdministrationServices, ClusterServices, CoordinatorServices, DataServices, Services

_Group = TypeVar("_Group")


def an_empty(kind: type[_Group]) -> _Group:
    """Makes a group of services without its parts."""
    return object.__new__(kind)


def services_with(**parts: Any) -> Services:
    """These parts and no others, each by its name, in the group that has it. A part may be a fake."""
    services = an_empty(Services)
    services.data, services.administration = an_empty(DataServices), an_empty(AdministrationServices)
    services.cluster, services.coordinators = an_empty(ClusterServices), an_empty(CoordinatorServices)
    services.remote = None
    groups = (services, services.data, services.administration, services.cluster, services.coordinators)
    group_of = {name: group for group in groups for name in group.__slots__}
    for name, part in parts.items():
        setattr(group_of[name], name, part)
    return services
