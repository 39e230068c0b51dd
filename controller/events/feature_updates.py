"""Handles UpdateFeatures in the active controller: judges the updates, and writes the finalized levels into /feature (KIP-584).

The rules and texts of versions 0 and 1 are those of Apache Kafka 3.9, where each update stands for itself. From version 2 on they are those
of 4.4, where one wrong update refuses all of them.
"""

from collections.abc import Iterable, Iterator, Mapping
from enum import IntEnum
from typing import NamedTuple

from ottla.controller.admin.features import are_versioned, feature_body
from ottla.controller.errors import FeatureUpdateFailed, NoNode, StoreError
from ottla.controller.state.core import ControllerCore
from ottla.controller.store.metadata_store import Create, Get, SetData, Stat, data_and_stat
from ottla.controller.znodes.layout import FEATURE, HIGHEST_SUPPORTED, FeatureNode, decode_feature, encode_feature
from ottla.controller.znodes.znode_json import MalformedZNode
from ottla.protocol import features


class UpgradeType(IntEnum):
    """The kind of change that a client allows."""

    UPGRADE = 1
    SAFE_DOWNGRADE = 2
    UNSAFE_DOWNGRADE = 3


class FeatureUpdate(NamedTuple):
    """The wish of a client: a feature gets a level, or with level 0 is not finalized any more."""

    feature: str
    level: int
    upgrade_type: int

    @property
    def is_deletion(self) -> bool:
        """Whether the feature is to have no level."""
        return self.level < 1 and self.upgrade_type != UpgradeType.UPGRADE


class FeatureOutcome(NamedTuple):
    """The result of updates. Without an objection to an update it is carried out, unless only the others count."""

    objections: Mapping[str, str]
    """By feature, the reason why it keeps its level."""
    epoch: int | None
    """The version of /feature with the new levels; None if nothing was written."""


class FeatureUpdates:
    """The controller's part of UpdateFeatures."""

    def __init__(self, core: ControllerCore) -> None:
        self._core = core

    async def update(self, updates: Iterable[FeatureUpdate], *, validate_only: bool, all_or_none: bool) -> FeatureOutcome:
        """Judge and carry out updates; the first one of a feature that is named twice counts. Raises FeatureUpdateFailed, StoreError."""
        node, version = await self._finalized()
        levels = dict(node.features)
        objections: dict[str, str] = {}
        judged: set[str] = set()
        for update in updates:
            await self._core.pause()
            if update.feature in judged:
                continue
            judged.add(update.feature)
            existing = node.features.get(update.feature)
            objection = self._objection_of_4_4(update, existing) if all_or_none else self._objection_of_3_9(update, existing)
            if objection is not None:
                objections[update.feature] = objection
            elif update.level < 1:
                levels.pop(update.feature, None)
            else:
                levels[update.feature] = update.level
        if validate_only or levels == node.features or (all_or_none and objections):
            return FeatureOutcome(objections, None)
        return FeatureOutcome(objections, await self._write(levels, version))

    async def _finalized(self) -> tuple[FeatureNode, int | None]:
        """The node and its version; None if it does not exist."""
        (found,) = await self._core.store.pipeline([Get(FEATURE)])
        if isinstance(found, NoNode):
            return FeatureNode({}), None
        data, stat = data_and_stat(found)
        try:
            node = decode_feature(data)
        except MalformedZNode as error:
            raise FeatureUpdateFailed(str(error)) from None
        return (node if node.is_enabled else FeatureNode({})), stat.version

    async def _write(self, levels: Mapping[str, int], version: int | None) -> int:
        body = encode_feature(FeatureNode(levels, are_versioned(self._core.config), feature_body(self._core.config)))
        write: Create | SetData = Create(FEATURE, body) if version is None else SetData(FEATURE, body, version)
        (outcome,) = await self._core.states.write([write])
        if isinstance(outcome, StoreError):
            raise FeatureUpdateFailed(str(outcome))
        return outcome.version if isinstance(outcome, Stat) else 0

    def _objection_of_3_9(self, update: FeatureUpdate, existing: int | None) -> str | None:
        level, kind = update.level, update.upgrade_type
        if not update.feature:
            return "Feature name can not be empty."
        if kind not in tuple(UpgradeType):
            return "Received unknown upgrade type."
        if update.is_deletion:
            return "Can not delete non-existing finalized feature." if existing is None else None
        if level < 1:
            return f"Can not provide versionLevel: {level} less than 1 without setting the SAFE downgradeType in the request."
        if existing is not None:
            if level == existing:
                verb = "downgrade" if kind == UpgradeType.SAFE_DOWNGRADE else "upgrade"
                return f"Can not {verb} a finalized feature from existing versionLevel:{existing} to the same value."
            if level < existing and kind != UpgradeType.SAFE_DOWNGRADE:
                return (
                    f"Can not downgrade finalized feature from existing versionLevel:{existing} to provided versionLevel:{level} "
                    "without setting the downgradeType to SAFE in the request."
                )
            if level > existing and kind != UpgradeType.UPGRADE:
                return (
                    f"When the downgradeType is set to SAFE in the request, the provided versionLevel:{level} can not be greater than "
                    f"existing versionLevel:{existing}."
                )
        if update.feature not in features.IMPLEMENTED:
            return "Could not apply finalized feature update because the provided feature is not supported."
        if level > features.IMPLEMENTED[update.feature]:
            return (
                f"Could not apply finalized feature update because the provided versionLevel:{level} is lower than the "
                "supported minVersion:1."
            )
        if next(self._lacking(update), None) is not None:
            return "Could not apply finalized feature update because brokers were found to have incompatible versions for the feature."
        return None

    def _objection_of_4_4(self, update: FeatureUpdate, existing: int | None) -> str | None:
        level, kind, name = update.level, update.upgrade_type, update.feature
        highest = features.IMPLEMENTED.get(name)
        here = f"Local controller {self._core.broker_id}"
        if kind not in tuple(UpgradeType):
            return "The controller does not support the given upgrade type."
        if highest is None and (level or existing is None):
            return f"{here} does not support this feature." if level else f"Feature {name} not found."
        if level < 0:
            return "A feature version cannot be less than 0."
        if highest is not None and level > highest:
            return f"{here} only supports versions 0-{highest}"
        for broker_id, supported in self._lacking(update) if level else ():
            lacks = "does not support this feature." if supported is None else f"only supports versions 0-{supported}"
            return f"Broker {broker_id} {lacks}"
        if level < (existing or 0) and kind == UpgradeType.UPGRADE:
            return "Can't downgrade the version of this feature without setting the upgrade type to either safe or unsafe downgrade."
        return None

    def _lacking(self, update: FeatureUpdate) -> Iterator[tuple[int, int | None]]:
        """The live and leaving brokers that do not support the level, with the highest one that they support."""
        for broker_id, broker in sorted(self._core.context.brokers.items()):
            if not broker.registration.supports(update.feature, update.level):
                yield broker_id, broker.registration.features.get(update.feature, {}).get(HIGHEST_SUPPORTED)
