"""What the client says about ACLs that it has deleted."""

from collections.abc import Callable
from typing import Any

import pytest

from ottla.client.acl_admin import EVERY_ACL, delete_acls
from ottla.client.cluster import Cluster
from ottla.client.connection import Connection
from ottla.client.errors import ConnectionLost
from ottla.protocol.acls import AccessControlEntry, AclBinding, Operation, PatternType, PermissionType, ResourcePattern, ResourceType
from ottla.protocol.errors import ErrorCode
from ottla.protocol.messages.delete_acls import DeleteAclsFilterResult, DeleteAclsMatchingAcl, DeleteAclsRequest, DeleteAclsResponse
from ottla.protocol.messages.describe_acls import AclDescription, DescribeAclsResource, DescribeAclsResponse


def acl_of(principal: str) -> AclBinding:
    pattern = ResourcePattern(ResourceType.TOPIC, "orders", PatternType.LITERAL)
    return AclBinding(pattern, AccessControlEntry(principal, "*", Operation.READ, PermissionType.ALLOW))


ALICE, BOB = acl_of("User:alice"), acl_of("User:bob")


class ClusterWithAcls(Cluster):
    """Has the ACLs of alice and bob, and fails at each attempt to delete as it is told."""

    def __init__(self, failures: list[Callable[["ClusterWithAcls"], None]], *, may_describe: bool = True) -> None:
        super().__init__("there:9092")
        self.acls = [ALICE, BOB]
        self._failures = failures
        self._may_describe = may_describe

    def ask(self, find: Callable[[], Connection], request: Any, response: Any, **_: object) -> Any:
        if not isinstance(request, DeleteAclsRequest):
            if not self._may_describe:
                return DescribeAclsResponse(error_code=ErrorCode.CLUSTER_AUTHORIZATION_FAILED)
            return DescribeAclsResponse(resources=[self._described(each) for each in self.acls])
        if self._failures:
            self._failures.pop(0)(self)
            raise ConnectionLost("no answer")
        deleted, self.acls = self.acls, []
        return DeleteAclsResponse(filter_results=[DeleteAclsFilterResult(matching_acls=[self._matching(each) for each in deleted])])

    @staticmethod
    def _described(acl: AclBinding) -> DescribeAclsResource:
        pattern, entry = acl
        described = AclDescription(
            principal=entry.principal, host=entry.host, operation=entry.operation, permission_type=entry.permission_type
        )
        return DescribeAclsResource(
            resource_type=pattern.resource_type, resource_name=pattern.name, pattern_type=pattern.pattern_type, acls=[described]
        )

    @staticmethod
    def _matching(acl: AclBinding) -> DeleteAclsMatchingAcl:
        pattern, entry = acl
        return DeleteAclsMatchingAcl(
            resource_type=pattern.resource_type,
            resource_name=pattern.name,
            pattern_type=pattern.pattern_type,
            principal=entry.principal,
            host=entry.host,
            operation=entry.operation,
            permission_type=entry.permission_type,
        )


def delete_all(cluster: ClusterWithAcls) -> None:
    cluster.acls = []


def delete_bob(cluster: ClusterWithAcls) -> None:
    cluster.acls = [ALICE]


@pytest.mark.slow
@pytest.mark.parametrize("failure", [delete_all, delete_bob, lambda _: None])
def test_acls_that_an_attempt_without_answer_has_deleted_are_said_to_be_deleted(failure: Callable[[ClusterWithAcls], None]) -> None:
    cluster = ClusterWithAcls([failure])
    assert delete_acls(cluster, [EVERY_ACL]) == {ALICE: None, BOB: None}
    assert cluster.acls == []


def test_acls_are_deleted_by_a_client_that_may_not_see_them() -> None:
    cluster = ClusterWithAcls([], may_describe=False)
    assert delete_acls(cluster, [EVERY_ACL]) == {ALICE: None, BOB: None}
