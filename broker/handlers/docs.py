"""Writes docs/protocol-support.md from the handler table: `python -m ottla.broker.handlers.docs [FILE]`. A test compares page and table."""

import ast
import re
import sys
from pathlib import Path

import ottla.protocol.messages
from ottla.broker.handlers.table import IMPLEMENTED, SERVED, module_of
from ottla.broker.handlers.unread_fields import UNREAD_FIELDS
from ottla.broker.request.listed_apis import OF_FEATURES, UNLISTED_IN_3_9, WITH_SUBSCRIPTION, WITHOUT_FEATURE
from ottla.protocol.api_keys import ApiKey
from ottla.protocol.schema.api_versions import versions_in_3_9
from ottla.protocol.schema.registry import INTER_BROKER_APIS, ZOOKEEPER_MODE_APIS, api

PAGE = Path("docs/protocol-support.md")

_ROOT = Path(__file__).parents[3]
_MESSAGES = Path(ottla.protocol.messages.__path__[0])
_SENTENCE_END = re.compile(r"(?<=[^.]{2})\. ")

_HEAD = """\
# Protocol support

This page is written by `python -m ottla.broker.handlers.docs` from `broker/handlers/table.py`, `unread_fields.py` beside it, and the first
paragraphs of the handlers; change those, not the page.

In a cluster on ZooKeeper without a finalized feature, a broker lists in ApiVersions exactly the APIs of the first two tables, with the
version ranges of Apache Kafka 3.9 in ZooKeeper mode. In a cluster of its own, or with a finalized feature, it also lists the newer versions
of the column "Kafka 4". Where the column names a feature, this feature has to be finalized at that level or a higher one. Versions with the
word "subscription" are listed while there is a subscription to metrics of clients.

A request of any other API or version closes the connection, as with Apache Kafka; ApiVersions in an unknown version is answered in
version 0.
"""

_INTER_BROKER = """\
## Between brokers

The controller and other brokers send these requests; clients have no use for them.
"""

_UNREAD = """\
## Fields that have no effect

Handlers read all other fields of requests; a test checks this.
"""


def page() -> str:
    """The whole page."""
    listed = IMPLEMENTED | SERVED & {*WITHOUT_FEATURE, *WITH_SUBSCRIPTION, *(key for of in OF_FEATURES.values() for key in of)}
    clients = sorted(listed - INTER_BROKER_APIS)
    brokers = sorted(listed & INTER_BROKER_APIS)
    return "\n".join(
        [
            _HEAD,
            *_table(clients),
            "",
            _INTER_BROKER,
            *_table(brokers),
            "",
            _UNREAD,
            "| API | Fields | Why |",
            "|---|---|---|",
            *(f"| {_name(key)} | {_fields(each.names)} | {each.why} |" for key in sorted(UNREAD_FIELDS) for each in UNREAD_FIELDS[key]),
            "",
        ]
    )


def _table(keys: list[ApiKey]) -> list[str]:
    rows = [f"| {_name(key)} | {int(key)} | {_versions(key)} | {_later(key)} | {_purpose(key)} | {_notes(key)} |" for key in keys]
    return ["| API | Key | Versions | Kafka 4 | What it is for | Here |", "|---|---|---|---|---|---|", *rows]


def _fields(names: tuple[str, ...]) -> str:
    return ", ".join(f"`{name}`" for name in names) if names else "all"


def _name(key: ApiKey) -> str:
    return api(key).request.__name__.removesuffix("Request")


def _versions(key: ApiKey) -> str:
    if key not in ZOOKEEPER_MODE_APIS | UNLISTED_IN_3_9:
        return ""
    first, last = versions_in_3_9(key)
    return str(first) if first == last else f"{first}-{last}"


def _later(key: ApiKey) -> str:
    """The newest versions that 3.9 does not list."""
    without = [str(WITHOUT_FEATURE[key])] if key in WITHOUT_FEATURE else []
    without += [f"{WITH_SUBSCRIPTION[key]} (subscription)"] if key in WITH_SUBSCRIPTION else []
    return ", ".join(without + [f"{last} ({name} {level})" for (name, level), of in OF_FEATURES.items() for last in [of.get(key)] if last])


def _purpose(key: ApiKey) -> str:
    """The first sentence after the API's name in the docstring of its messages; otherwise the name split into words."""
    paragraph = _paragraphs(_MESSAGES / f"{key.name.lower()}.py")[0]
    sentence = _SENTENCE_END.split(paragraph.partition(": ")[2])[0].rstrip(".") or key.name.lower().replace("_", " ")
    return sentence[:1].upper() + sentence[1:]


def _notes(key: ApiKey) -> str:
    """The first paragraph of the handler's module, without the API's name and versions, which are in other columns."""
    title, *rest = _paragraphs(_ROOT / f"{module_of(key).replace('.', '/')}.py")
    head = re.compile(rf"(?:[A-Z][a-z]+s )?{_name(key)} \(api {int(key)}\), versions? [0-9-]+[ :;,.]*")
    text = head.sub("", title)
    if not text and rest:
        text = rest[0]
    return text[:1].upper() + text[1:]


def _paragraphs(path: Path) -> list[str]:
    # Read, not imported: the page must not depend on modules that cannot be imported.
    source = path.read_text(encoding="utf-8")
    docstring = (ast.get_docstring(ast.parse(source)) or "").replace("|", "\\|")
    return [" ".join(paragraph.split()) for paragraph in docstring.split("\n\n")]


def main(arguments: list[str]) -> None:
    """Writes the page to the given file, or to `PAGE`."""
    path = Path(arguments[0]) if arguments else PAGE
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(page(), encoding="utf-8")


if __name__ == "__main__":
    main(sys.argv[1:])
