"""The checks of a request that changes configurations, before anything is looked up."""

import pytest

from ottla.broker.handlers.configs.config_resources import MAX_ENTRIES, check_entries
from ottla.controller.errors import InvalidAdminRequest
from ottla.protocol.messages.incremental_alter_configs import AlterableConfig, AlterConfigsResource


def test_one_resource_has_a_bounded_number_of_changes() -> None:
    configs = [AlterableConfig(name=f"key-{number}", value="1") for number in range(MAX_ENTRIES)]
    resource = AlterConfigsResource(resource_type=4, resource_name="0", configs=configs)
    check_entries(resource)
    configs.append(AlterableConfig(name="key-0", value="1"))
    with pytest.raises(InvalidAdminRequest, match="2001 configurations of one resource; at most 2000 can be changed at once"):
        check_entries(resource)
