"""UpdateFeatures in the controller: what is refused, what is written, and which brokers may be members."""

import asyncio
from collections.abc import Sequence

import pytest

from ottla.controller.errors import FeatureUpdateFailed, NotController
from ottla.controller.events.feature_updates import FeatureOutcome, FeatureUpdate, UpgradeType
from ottla.controller.store.metadata_store import Multi, SetData
from ottla.controller.znodes.layout import FEATURE, BrokerRegistration, FeatureNode, decode_feature, encode_feature
from ottla.protocol import features
from tests.support.controlled_cluster import BrokerUnderTest, Cluster, run

UPGRADE, SAFE, UNSAFE = UpgradeType
F = "made.up"
SUPPORTED = {F: {"min_version": 1, "max_version": 2}}


@pytest.fixture(autouse=True)
def implemented(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(features, "IMPLEMENTED", {F: 2})
    registration = BrokerUnderTest.registration

    def with_features(broker: BrokerUnderTest) -> BrokerRegistration:
        return registration(broker)._replace(features=SUPPORTED if broker.broker_id < 8 else {})

    monkeypatch.setattr(BrokerUnderTest, "registration", with_features)


def levels(cluster: Cluster) -> dict[str, int]:
    return dict(decode_feature(cluster.ensemble.dump()[FEATURE].data).features)


async def update(cluster: Cluster, *updates: FeatureUpdate, validate_only: bool = False, all_or_none: bool = False) -> FeatureOutcome:
    return await cluster.controller.controller.update_features(updates, validate_only=validate_only, all_or_none=all_or_none)


async def finalized(cluster: Cluster, level: int) -> None:
    await cluster.brokers[0].store.set(FEATURE, encode_feature(FeatureNode({F: level} if level else {})))


@pytest.mark.parametrize(
    ("existing", "asked", "expected"),
    [
        (0, FeatureUpdate(F, 1, UPGRADE), 1),
        (0, FeatureUpdate(F, 2, UPGRADE), 2),
        (1, FeatureUpdate(F, 2, UPGRADE), 2),
        (2, FeatureUpdate(F, 1, SAFE), 1),
        (2, FeatureUpdate(F, 0, SAFE), 0),
        (2, FeatureUpdate(F, -3, UNSAFE), 0),
        (0, FeatureUpdate("", 1, UPGRADE), "Feature name can not be empty."),
        (0, FeatureUpdate(F, 1, 0), "Received unknown upgrade type."),
        (0, FeatureUpdate(F, 1, 4), "Received unknown upgrade type."),
        (0, FeatureUpdate(F, 0, SAFE), "Can not delete non-existing finalized feature."),
        (
            1,
            FeatureUpdate(F, 0, UPGRADE),
            "Can not provide versionLevel: 0 less than 1 without setting the SAFE downgradeType in the request.",
        ),
        (1, FeatureUpdate(F, 1, UPGRADE), "Can not upgrade a finalized feature from existing versionLevel:1 to the same value."),
        (1, FeatureUpdate(F, 1, SAFE), "Can not downgrade a finalized feature from existing versionLevel:1 to the same value."),
        (
            2,
            FeatureUpdate(F, 1, UPGRADE),
            "Can not downgrade finalized feature from existing versionLevel:2 to provided versionLevel:1 without setting the downgradeType "
            "to SAFE in the request.",
        ),
        (
            1,
            FeatureUpdate(F, 2, SAFE),
            "When the downgradeType is set to SAFE in the request, the provided versionLevel:2 can not be greater than existing "
            "versionLevel:1.",
        ),
        (0, FeatureUpdate("other", 1, UPGRADE), "Could not apply finalized feature update because the provided feature is not supported."),
        (
            0,
            FeatureUpdate(F, 3, UPGRADE),
            "Could not apply finalized feature update because the provided versionLevel:3 is lower than the supported minVersion:1.",
        ),
    ],
)
def test_an_update_is_carried_out_or_refused_in_the_words_of_3_9(existing: int, asked: FeatureUpdate, expected: int | str) -> None:
    async def scenario(cluster: Cluster) -> None:
        await finalized(cluster, existing)
        outcome = await update(cluster, asked)
        if isinstance(expected, str):
            assert outcome == FeatureOutcome({asked.feature: expected}, None)
            assert levels(cluster).get(F, 0) == existing
        else:
            assert outcome == FeatureOutcome({}, 2)
            assert levels(cluster).get(F, 0) == expected

    run(scenario, brokers=1)


@pytest.mark.parametrize(
    ("existing", "asked", "expected"),
    [
        (0, FeatureUpdate(F, 2, UPGRADE), 2),
        (1, FeatureUpdate(F, 1, UPGRADE), 1),
        (1, FeatureUpdate(F, 2, SAFE), 2),
        (2, FeatureUpdate(F, 0, UNSAFE), 0),
        (0, FeatureUpdate(F, 0, SAFE), 0),
        (0, FeatureUpdate("", 1, UPGRADE), "Local controller 0 does not support this feature."),
        (0, FeatureUpdate("other", 0, SAFE), "Feature other not found."),
        (0, FeatureUpdate(F, 3, UPGRADE), "Local controller 0 only supports versions 0-2"),
        (0, FeatureUpdate(F, -1, UPGRADE), "A feature version cannot be less than 0."),
        (0, FeatureUpdate(F, 1, 0), "The controller does not support the given upgrade type."),
        (
            2,
            FeatureUpdate(F, 1, UPGRADE),
            "Can't downgrade the version of this feature without setting the upgrade type to either safe or unsafe downgrade.",
        ),
    ],
)
def test_later_versions_refuse_in_the_words_of_4_4(existing: int, asked: FeatureUpdate, expected: int | str) -> None:
    async def scenario(cluster: Cluster) -> None:
        await finalized(cluster, existing)
        outcome = await update(cluster, asked, all_or_none=True)
        assert outcome.objections == ({asked.feature: expected} if isinstance(expected, str) else {})
        assert levels(cluster).get(F, 0) == (existing if isinstance(expected, str) else expected)

    run(scenario, brokers=1)


@pytest.mark.parametrize(("all_or_none", "expected"), [(False, {F: 1}), (True, {})])
def test_one_wrong_update_refuses_the_others_from_version_2_on(all_or_none: bool, expected: dict[str, int]) -> None:
    async def scenario(cluster: Cluster) -> None:
        asked = [FeatureUpdate(F, 1, UPGRADE), FeatureUpdate("other", 1, UPGRADE), FeatureUpdate(F, 2, UPGRADE)]
        outcome = await update(cluster, *asked, all_or_none=all_or_none)
        assert outcome.objections.keys() == {"other"}
        assert levels(cluster) == expected

    run(scenario, brokers=1)


def test_a_validated_update_is_not_written() -> None:
    async def scenario(cluster: Cluster) -> None:
        assert await update(cluster, FeatureUpdate(F, 1, UPGRADE), validate_only=True) == FeatureOutcome({}, None)
        assert levels(cluster) == {}

    run(scenario, brokers=1)


@pytest.mark.parametrize(("all_or_none", "expected"), [(False, "brokers were found to have incompatible"), (True, "Broker 8 does")])
def test_a_level_that_a_live_broker_lacks_is_refused(all_or_none: bool, expected: str) -> None:
    async def scenario(cluster: Cluster) -> None:
        await cluster.start(8)
        outcome = await update(cluster, FeatureUpdate(F, 1, UPGRADE), all_or_none=all_or_none)
        assert expected in outcome.objections[F]
        await cluster.kill(8)
        assert (await update(cluster, FeatureUpdate(F, 1, UPGRADE), all_or_none=all_or_none)).objections == {}

    run(scenario, brokers=2)


def test_a_broker_without_a_finalized_feature_counts_as_not_alive(caplog: pytest.LogCaptureFixture) -> None:
    async def scenario(cluster: Cluster) -> None:
        cluster.brokers[0].controller._core.finalized = lambda: {F: 1}
        await cluster.topic([0, 1])
        await cluster.start(8)
        await cluster.start(2)
        assert cluster.controller.controller.context.brokers.keys() == {0, 1, 2}
        await cluster.kill(1)
        assert cluster.state().leader == 0

    run(scenario, brokers=2)
    lines = [record.getMessage() for record in caplog.records if "broker 8" in record.getMessage()]
    assert lines == ["broker 8 counts as not alive, because it does not support made.up=1"]


def test_a_deleted_node_is_created_by_the_next_update() -> None:
    async def scenario(cluster: Cluster) -> None:
        await cluster.brokers[0].store.delete(FEATURE)
        assert await update(cluster, FeatureUpdate(F, 1, UPGRADE)) == FeatureOutcome({}, 0)
        assert levels(cluster) == {F: 1}

    run(scenario, brokers=1)


@pytest.mark.parametrize("data", [b"garbage", b'{"features":{},"version":3,"status":1}'])
def test_a_malformed_node_is_left_to_the_operator(data: bytes) -> None:
    async def scenario(cluster: Cluster) -> None:
        await cluster.brokers[0].store.set(FEATURE, data)
        with pytest.raises(FeatureUpdateFailed, match="/feature"):
            await update(cluster, FeatureUpdate(F, 1, UPGRADE))
        assert cluster.ensemble.dump()[FEATURE].data == data

    run(scenario, brokers=1)


def test_a_change_by_another_hand_meanwhile_is_not_overwritten() -> None:
    async def scenario(cluster: Cluster) -> None:
        broker = cluster.brokers[0]
        pipeline = broker.store.pipeline

        async def disturbed(requests: Sequence[object]) -> object:
            if any(
                isinstance(each, Multi) and any(isinstance(write, SetData) and write.path == FEATURE for write in each.writes)
                for each in requests
            ):
                await pipeline([SetData(FEATURE, encode_feature(FeatureNode({F: 2})))])
            return await pipeline(requests)  # type: ignore[arg-type]  # passed on as they came

        broker.store.pipeline = disturbed  # type: ignore[method-assign,assignment]  # in the middle of the update
        with pytest.raises(FeatureUpdateFailed):
            await update(cluster, FeatureUpdate(F, 1, UPGRADE))
        broker.store.pipeline = pipeline  # type: ignore[method-assign]  # as it was
        assert levels(cluster) == {F: 2}

    run(scenario, brokers=1)


def test_two_admins_at_once_have_their_updates_judged_one_after_the_other() -> None:
    async def scenario(cluster: Cluster) -> None:
        outcomes = await asyncio.gather(*(update(cluster, FeatureUpdate(F, 1, UPGRADE)) for _ in range(2)))
        assert sorted(len(outcome.objections) for outcome in outcomes) == [0, 1]
        assert levels(cluster) == {F: 1}

    run(scenario, brokers=1)


def test_another_broker_than_the_controller_refuses() -> None:
    async def scenario(cluster: Cluster) -> None:
        with pytest.raises(NotController):
            await cluster.brokers[1].controller.update_features([], validate_only=False, all_or_none=False)

    run(scenario, brokers=2)


def test_the_features_of_a_registration_are_numbers() -> None:
    registration = BrokerRegistration((), None, 0, features=SUPPORTED)
    assert [registration.supports(F, level) for level in range(4)] == [False, True, True, False]
    assert not registration.supports("other", 1)
