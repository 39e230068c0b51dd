"""Writes the reference page docs/configuration.md from the declarations: `python -m ottla.config.docs [FILE]`. A test
compares the two."""

import re
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from ottla.config.broker_keys import BROKER_KEYS, DYNAMIC_ONLY_KEYS, SUBJECTS
from ottla.config.schema.key import DynamicScope, Key
from ottla.config.schema.metadata_version import MetadataVersion
from ottla.config.topic import BROKER_KEY_OF, TOPIC_KEYS

PAGE = Path("docs/configuration.md")

_HEAD = """\
# Configuration

This page is written by `python -m ottla.config.docs` from the declarations in `config/`; change those, not the page.

The keys, their types, bounds and defaults are those of Apache Kafka 3.9. A broker takes them from a `server.properties` file, from
environment variables (`KAFKA_NUM_PARTITIONS` is `num.partitions`; `__` stands for an underscore and `___` for a hyphen) and from
`--set key=value`; later sources win. With an invalid value the broker prints one line and does not start. An unknown key is a warning,
which names the key that may be meant; `ottla cluster up` prints it once for all brokers.

A value may have variables (KIP-421, KIP-887), in all these sources and in dynamic configurations of brokers. `config.providers` has the
names of the providers, separated by commas. `config.providers.NAME.class` is one of the classes of Apache Kafka below, with the prefix
`org.apache.kafka.common.config.provider.`; another class ends the start. `config.providers.NAME.param.` is the prefix of parameters.

| variable, if the provider's name is that of Apache Kafka's examples | class | parameter |
|---|---|---|
| `${env:NAME}`: a variable of the environment | `EnvVarConfigProvider` | `allowlist.pattern`: a regular expression for the whole name |
| `${file:PATH:KEY}`: a property of a file in UTF-8 | `FileConfigProvider` | `allowed.paths`: directories or files, separated by commas |
| `${directory:PATH:FILE}`: the content of a file | `DirectoryConfigProvider` | `allowed.paths` |

A variable that its provider does not know, or may not read, stays as it is. DescribeConfigs shows the resolved value. The variables of a
dynamic configuration are checked with the providers in the same configuration, and DescribeConfigs lists them as synonyms. A dynamic
configuration can name a provider only as the other sources define it. Its parameters are always those of the other sources. A client
that may change configurations of brokers can read all that these providers may read, so set `allowed.paths` and `allowlist.pattern`.

- **Change** is the scope in which a key may be changed while the broker runs: `cluster-wide` keys for the whole cluster or for one broker,
  `per-broker` keys for one broker only, keys marked `per listener` only with the prefix `listener.name.NAME.` of a listener. Without an
  entry a change needs a restart.
- **Effect** is `yes` if this server acts on the key. The other keys are accepted, checked, and shown by DescribeConfigs. If they are set,
  the log names them in one line.
"""

_STANDALONE = """\
## Without zookeeper.connect

In ZooKeeper mode Apache Kafka requires `zookeeper.connect`. Ottla does not: without it the broker keeps the metadata in an embedded store.
Such a broker is usually alone, on a developer's machine. So these defaults differ, and DescribeConfigs shows them as defaults. With them
internal topics do not wait for brokers that do not exist, other machines on the network cannot connect, and the data is in the directory
where the broker was started.
"""


def page() -> str:
    """The whole reference page."""
    parts = [_HEAD, _STANDALONE, _table(("Key", "Default without zookeeper.connect", "Apache Kafka's default"), _standalone_rows())]
    for subject in SUBJECTS:
        keys = [key for key in vars(subject).values() if isinstance(key, Key) and BROKER_KEYS.get(key.name) is key]
        parts += [_section(subject.__doc__), _table(_COLUMNS, (_row(key) for key in _sorted(keys)))]
    parts += [
        "## Quotas of a broker\n",
        "These exist only as dynamic configuration of one broker; a properties file cannot set them.\n",
        _table(_COLUMNS, (_row(key) for key in _sorted(DYNAMIC_ONLY_KEYS.values()))),
        "## Topics\n",
        "A topic without a key of its own takes the value of the broker's key.\n",
        _table(
            ("Key", "Type", "Default: the broker's", "Valid values", "Effect", "What it does"),
            (_topic_row(key) for key in _sorted(TOPIC_KEYS.values())),
        ),
    ]
    return "\n".join(part for part in parts if part)


_OPENING = re.compile(r"^Declares the keys (of|that are) (the )?")
_COLUMNS = ("Key", "Type", "Default", "Valid values", "Change", "Importance", "Effect", "What it does")


def _standalone_rows() -> Iterable[tuple[str, ...]]:
    for key in _sorted(BROKER_KEYS.values()):
        if key.has_standalone_default:
            yield f"`{key.name}`", _value(key, key.default_for(standalone=True)), _value(key, key.default)


def _row(key: Key[Any]) -> tuple[str, ...]:
    synonyms = ", then ".join(f"`{synonym.name}`" for synonym in key.synonyms)
    default = _value(key, key.default) + (" (differs without zookeeper.connect)" if key.has_standalone_default else "")
    return (
        f"`{key.name}`" + (" (internal)" if key.internal else ""),
        _type(key),
        default,
        _bounds(key),
        _change(key),
        key.importance.value,
        "yes" if key.effective else "",
        f"{key.doc} Without it, {synonyms}." if synonyms else key.doc,
    )


def _topic_row(key: Key[Any]) -> tuple[str, ...]:
    broker = BROKER_KEY_OF.get(key.name)
    default = _value(key, key.default) if broker is None else f"`{broker.name}`"
    return f"`{key.name}`", _type(key), default, _bounds(key), "yes" if key.effective else "", key.doc


def _change(key: Key[Any]) -> str:
    if key.dynamic is DynamicScope.READ_ONLY:
        return ""
    return f"{key.dynamic.value}, per listener" if key.listener_only else str(key.dynamic.value)


def _type(key: Key[Any]) -> str:
    return key.type.kind.name.lower()


def _value(key: Key[Any], value: object) -> str:
    text = key.render(value)
    if text is None:
        return "none"
    return f"`{text}`" if text else "empty"


def _bounds(key: Key[Any]) -> str:
    if isinstance(key.type, MetadataVersion):
        return "`0.8.0` to `4.0-IV1`"
    bounds = key.type.bounds()
    if bounds is None:
        return ""
    return f"`{bounds}`" if bounds.startswith(("[", "(")) else "-1 or at least 1" if "-1" in bounds else bounds


def _sorted(keys: Iterable[Key[Any]]) -> list[Key[Any]]:
    return sorted(keys, key=lambda key: key.name)


def _section(doc: str | None) -> str:
    title, _, rest = _OPENING.sub("", (doc or "").strip()).partition(": ")
    return f"## {title[:1].upper()}{title[1:]}\n\n{rest[:1].upper()}{rest[1:]}\n"


def _table(columns: tuple[str, ...], rows: Iterable[tuple[str, ...]]) -> str:
    lines = ["| " + " | ".join(columns) + " |", "|" + "---|" * len(columns)]
    lines += ["| " + " | ".join(cell.replace("|", "\\|") for cell in row) + " |" for row in rows]
    return "\n".join(lines) + "\n"


def main(arguments: list[str]) -> None:
    """Writes the page to the file of the first argument, or to docs/configuration.md."""
    target = Path(arguments[0]) if arguments else PAGE
    target.parent.mkdir(parents=True, exist_ok=True)
    target.write_text(page(), encoding="utf-8")


if __name__ == "__main__":
    main(sys.argv[1:])
