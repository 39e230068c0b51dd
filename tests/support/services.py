"""Builds the `Services` of a broker of which only some parts exist."""

from __future__ import annotations

from typing import Any

from ottla.broker.request.services import Services


def services_with(**parts: Any) -> Services:
    """These parts and no others, each by the name of its slot, in the facet that has the slot. A part may be a fake."""
    services = Services()
    facets = (services, services.data, services.coordinators, services.administration, services.cluster)
    facet_of = {slot: facet for facet in facets for slot in facet.__slots__}
    for name, part in parts.items():
        setattr(facet_of[name], name, part)
    return services
