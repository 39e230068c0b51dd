"""The reference page and the declarations say the same."""

from pathlib import Path

from ottla.config.broker_keys import BROKER_KEYS, DYNAMIC_ONLY_KEYS
from ottla.config.docs import main, page
from ottla.config.topic import TOPIC_KEYS

PAGE = Path(__file__).parents[3] / "docs" / "configuration.md"


def test_the_page_in_the_repository_is_that_of_the_declarations() -> None:
    assert PAGE.read_text(encoding="utf-8") == page(), "run: python -m ottla.config.docs"


def test_every_key_has_its_row() -> None:
    rows = [line.split("|")[1].strip().split(" ")[0] for line in page().splitlines() if line.startswith("| `")]
    for name in (*BROKER_KEYS, *DYNAMIC_ONLY_KEYS):
        assert f"`{name}`" in rows
    topic_rows = {row.strip("`") for row in rows[-len(TOPIC_KEYS) :]}
    assert topic_rows == set(TOPIC_KEYS)


def test_every_heading_is_a_name() -> None:
    headings = [line for line in page().splitlines() if line.startswith("## ")]
    assert [each for each in headings if each.startswith("## Declares") or each.endswith(".")] == []


def test_every_row_has_as_many_cells_as_its_head() -> None:
    columns = 0
    for line in page().replace("\\|", "").splitlines():
        if line.startswith("|---"):
            columns = line.count("|")
        elif line.startswith("| `"):
            assert line.count("|") == columns, line


def test_the_page_is_written_where_it_is_asked_for(tmp_path: Path) -> None:
    main([str(tmp_path / "docs" / "configuration.md")])
    assert (tmp_path / "docs" / "configuration.md").read_text(encoding="utf-8") == page()
