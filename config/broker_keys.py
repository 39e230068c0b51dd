"""Indexes all broker keys by name, and resolves synonyms.

A name is that of a key, of a key of one listener (`listener.name.NAME.KEY`), of a quota that exists only dynamically,
or unknown.
"""

from collections.abc import Iterable, Mapping
from types import MappingProxyType
from typing import Any

from ottla.config.keys import authorizer_zookeeper as broker_authorizer_zookeeper
from ottla.config.keys import cleaner as broker_cleaner
from ottla.config.keys import general as broker_general
from ottla.config.keys import groups as broker_groups
from ottla.config.keys import groups_4 as broker_groups_4
from ottla.config.keys import groups_next as broker_groups_next
from ottla.config.keys import kraft as broker_kraft
from ottla.config.keys import log as broker_log
from ottla.config.keys import metrics as broker_metrics
from ottla.config.keys import network as broker_network
from ottla.config.keys import own as broker_own
from ottla.config.keys import quotas as broker_quotas
from ottla.config.keys import replication as broker_replication
from ottla.config.keys import security as broker_security
from ottla.config.keys import shares as broker_shares
from ottla.config.keys import tiered as broker_tiered
from ottla.config.keys import tls as broker_tls
from ottla.config.keys import transactions as broker_transactions
from ottla.config.keys import zookeeper as broker_zookeeper
from ottla.config.schema.key import Key

SUBJECTS = (
    broker_general,
    broker_network,
    broker_log,
    broker_cleaner,
    broker_replication,
    broker_groups,
    broker_groups_4,
    broker_groups_next,
    broker_shares,
    broker_transactions,
    broker_security,
    broker_tls,
    broker_zookeeper,
    broker_authorizer_zookeeper,
    broker_tiered,
    broker_metrics,
    broker_own,
    broker_kraft,
)
"""The modules that declare broker keys, in the order of the reference page."""

BROKER_KEYS: Mapping[str, Key[Any]] = MappingProxyType(
    {key.name: key for module in SUBJECTS for key in vars(module).values() if isinstance(key, Key)}
)
DYNAMIC_ONLY_KEYS: Mapping[str, Key[Any]] = MappingProxyType(
    {key.name: key for key in vars(broker_quotas).values() if isinstance(key, Key)}
)

LISTENER_PREFIX = "listener.name."


def listener_base_name(name: str) -> str | None:
    """KEY of `listener.name.NAME.KEY`; None for a name of another form."""
    if not name.startswith(LISTENER_PREFIX):
        return None
    listener, dot, base = name.removeprefix(LISTENER_PREFIX).partition(".")
    return base if dot and listener is not None else None


def broker_synonyms(name: str, *, with_listener: bool) -> list[str]:
    """The names that set the same value as `name`, highest precedence first. `with_listener` adds the base key of a
    listener's key."""
    key = BROKER_KEYS.get(name)
    if key is not None:
        return [name, *(synonym.name for synonym in key.synonyms)]
    base = listener_base_name(name) if with_listener else None
    if base is None:
        return [name]
    # Names of SASL keys have the mechanism between the listener's prefix and the key.
    mechanism_key = next((key.name for key in broker_security.LISTENER_MECHANISM_KEYS if base.endswith(key.name)), None)
    return [name, mechanism_key or base]


def key_of(name: str) -> Key[Any] | None:
    """The declaration that gives `name` its type, also for a listener's key; None for an unknown name."""
    for each in broker_synonyms(name, with_listener=True):
        key = BROKER_KEYS.get(each) or DYNAMIC_ONLY_KEYS.get(each)
        if key is not None:
            return key
    return None


def like(name: str, known: Iterable[str] = BROKER_KEYS) -> str | None:
    """The known name that is so like this one that probably it is meant; None if no name is."""
    from difflib import get_close_matches  # most starts have no need of it

    return next(iter(get_close_matches(name, list(known), n=1, cutoff=0.85)), None)
