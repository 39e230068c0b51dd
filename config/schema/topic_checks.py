"""Checks values of topic keys by rules beyond simple bounds."""

import re

from ottla.config.errors import ConfigValueError

_REPLICA = re.compile(r"([0-9]{1,10}:[0-9]{1,10})?")  # Python reads no number of thousands of digits


def check_throttled_replicas(name: str, replicas: tuple[str, ...]) -> None:
    """Raises ConfigValueError unless `replicas` is `*` or partition:broker pairs."""
    if "".join(replicas).strip() == "*" or all(_REPLICA.fullmatch(replica.strip()) for replica in replicas):
        return
    wanted = (
        f"{name} must be the literal '*' or a list of replicas in the following format: "
        "[partitionId]:[brokerId],[partitionId]:[brokerId],..."
    )
    raise ConfigValueError(name, f"[{', '.join(replicas)}]", wanted)
