"""Errors of the configuration: each is one line that an operator or a client can act on.

The texts are Kafka's own where Kafka has one, because clients and tools show them unchanged.
"""


class ConfigError(Exception):
    """A configuration that cannot be used, as one line. Kafka's ConfigException."""

    @property
    def client_message(self) -> str:
        """The text an AlterConfigs response carries."""
        return str(self)


class ConfigValueError(ConfigError):
    """One key with one bad value."""

    def __init__(self, name: str, value: object, reason: str) -> None:
        super().__init__(f"Invalid value {'null' if value is None else value} for configuration {name}: {reason}")
        self.name = name
        self.value = value
        self.reason = reason


class ConfigConflictError(ConfigError):
    """Several keys that are each valid but do not go together."""

    @property
    def client_message(self) -> str:
        """Apache Kafka checks these with Scala's `require`, whose prefix reaches clients."""
        return f"requirement failed: {self}"


class DynamicConfigError(ConfigError):
    """A change that would be valid at a start but cannot be made while the broker runs."""

    @property
    def client_message(self) -> str:
        """The reason as Apache Kafka wraps it."""
        return f"Invalid value org.apache.kafka.common.config.ConfigException: {self} for configuration Invalid dynamic configuration"


class TopicConfigError(ConfigError):
    """Topic overrides that a topic cannot have. Kafka's InvalidConfigurationException."""
