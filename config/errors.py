"""Defines the exceptions of the configuration; the text of each is one line that names the remedy.

The texts are Kafka's own where Kafka has one, because clients and tools show them unchanged.
"""


class ConfigError(Exception):
    """An unusable configuration, as one line. Kafka's ConfigException."""

    @property
    def client_message(self) -> str:
        """The text in an AlterConfigs response."""
        return str(self)


class ConfigValueError(ConfigError):
    """An invalid value of one key."""

    def __init__(self, name: str, value: object, reason: str) -> None:
        super().__init__(f"Invalid value {'null' if value is None else value} for configuration {name}: {reason}")
        self.name = name
        self.value = value
        self.reason = reason


class ConfigConflictError(ConfigError):
    """Keys whose values are valid but contradict each other. `remedy` is for the operator, beside Kafka's own text."""

    def __init__(self, reason: str, remedy: str = "") -> None:
        super().__init__(f"{reason}; {remedy}" if remedy else reason)
        self._reason = reason

    @property
    def client_message(self) -> str:
        """Apache Kafka checks these with Scala's `require`, whose prefix is sent to clients."""
        return f"requirement failed: {self._reason}"


class DynamicConfigError(ConfigError):
    """A change that would be valid at a start but cannot be made while the broker runs."""

    @property
    def client_message(self) -> str:
        """The reason, wrapped as by Apache Kafka."""
        return f"Invalid value org.apache.kafka.common.config.ConfigException: {self} for configuration Invalid dynamic configuration"


class TopicConfigError(ConfigError):
    """Overrides that a topic cannot have. Kafka's InvalidConfigurationException."""


class ResourceConfigError(ConfigError):
    """Values that client metrics cannot have, where Apache Kafka answers INVALID_REQUEST."""


class JaasError(ConfigError):
    """A text that is no JAAS configuration. Its message never holds a value of an option, because values are secrets."""
