"""The command: what it refuses, how it takes turns, and what survives a part that fails."""

import json
import sys
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pytest

from benchmarks import bench
from benchmarks.brokers.machine import machine_facts
from benchmarks.parts.part import Curve, Part
from benchmarks.report.lines import Line, number
from benchmarks.turns.sizes import LONG, NORMAL, QUICK, Size
from benchmarks.turns.turn import Plan, Turn


def a_part(key: str, seen: list[tuple[str, str]], failing: Sequence[str] = ()) -> Part:
    """Notes its turns in `seen`; every turn counts up."""

    def take_turn(kind: str, turn: Turn, directory: Path, plan: Plan) -> None:
        seen.append((key, kind))
        if kind in failing:
            raise RuntimeError("the broker fell over; its log:\n# out of memory")
        turn.numbers["value"] = len(seen)
        turn.courses["value"] = [(0.0, 1.0), (1.0, float(len(seen)))]

    def lines(_: Size) -> Sequence[Line]:
        return [Line("value", f"the value of {key}", "turns", number("value"))]

    curve = Curve(f"{key}-course", "a course", "seconds", "turns", lambda turns: {"value": turns[-1].courses.get("value", [])})
    kinds = {"apache": "Apache <3.9>", "ottla": "Ottla"}
    return Part(key, f"Part {key}", "About it.", take_turn, lines, kinds, curves=[curve], is_repeated=key == "single")


def run(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, parts: Sequence[Part], *arguments: str) -> tuple[int, Path]:
    """(exit code, the folder of the page). Leaves the machine's memory alone, all of which would be used once."""
    monkeypatch.setattr(bench, "PARTS", {part.key: part for part in parts})
    monkeypatch.setattr(bench, "_RESULTS", tmp_path)
    monkeypatch.setattr(bench, "compiled", Path)
    monkeypatch.setattr(bench, "free_memory_present", lambda: nullcontext(0))
    status = bench.main(arguments)
    (page,) = tmp_path.iterdir()
    return status, page


def raising(error: type[BaseException]) -> Callable[[str, Turn, Path, Plan], None]:
    def take_turn(kind: str, turn: Turn, directory: Path, plan: Plan) -> None:
        raise error

    return take_turn


@pytest.fixture
def without_pictures(monkeypatch: pytest.MonkeyPatch) -> None:
    """For a test that looks at none: matplotlib takes a second to import, and a third of one for each picture."""
    drawer = SimpleNamespace(ratio_picture=lambda *_: "", curve_picture=lambda *_: "")
    monkeypatch.setitem(sys.modules, "benchmarks.report.picture", drawer)


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        (["--kinds", "pulsar"], "no such kind of broker: pulsar"),
        (["--only", "sums"], "no such load: sums"),
        (["--parts", "single,whole"], "no such part: whole"),
        (["--quick", "--long"], "not allowed with argument"),
        (["--dir", "/nowhere"], "/nowhere is no folder"),
    ],
)
def test_unknown_words_are_refused(arguments: list[str], complaint: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        bench.main(arguments)

    assert complaint in capsys.readouterr().err


@pytest.mark.usefixtures("without_pictures")
def test_sides_take_turns_and_only_the_first_part_is_repeated(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    seen: list[tuple[str, str]] = []

    run(monkeypatch, tmp_path, [a_part("single", seen), a_part("other", seen)], "--repeats", "2")

    assert seen == [("single", "apache"), ("single", "ottla")] * 2 + [("other", "apache"), ("other", "ottla")]


@pytest.mark.slow
def test_the_page_has_machine_tables_and_pictures_and_the_numbers_stand_beside_it(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    _, page = run(monkeypatch, tmp_path, [a_part("other", [])], "--quick")

    text = (page / "README.md").read_text(encoding="utf-8")
    assert "| cores |" in text
    assert "| the value of other | turns | 1 | 2 | 2.00 × |" in text
    assert "A quick run" in text or "Other programs used the machine" in text
    assert {path.name for path in page.iterdir()} == {"README.md", "results.json", "other-ratios.svg", "other-course.svg"}
    assert all(f"]({path.name})" in text for path in page.glob("*.svg"))
    results = json.loads((page / "results.json").read_text(encoding="utf-8"))
    assert [turn["numbers"]["value"] for turn in results["parts"]["other"]["Ottla"]] == [2]


@pytest.mark.slow
def test_a_turn_that_fails_is_noted_and_the_others_go_on(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    seen: list[tuple[str, str]] = []

    status, page = run(monkeypatch, tmp_path, [a_part("first", seen, failing=["apache"]), a_part("second", seen)], "--strict")

    assert [part for part, _ in seen] == ["first", "first", "second", "second"]
    text = (page / "README.md").read_text(encoding="utf-8")
    assert "turn failed: RuntimeError: the broker fell over; its log:\n\n      # out of memory\n" in text
    assert status == 1


@pytest.mark.usefixtures("without_pictures")
def test_a_kind_that_races_itself_is_numbered(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    _, page = run(monkeypatch, tmp_path, [a_part("other", [])], "--kinds", "ottla,ottla")

    assert "| Ottla #1 | Ottla #2 |" in (page / "README.md").read_text(encoding="utf-8")


def test_the_long_run_takes_ten_minutes() -> None:
    assert (QUICK.long_s, NORMAL.long_s, LONG.long_s) == (5, 600, 600)


@pytest.mark.usefixtures("without_pictures")
def test_a_run_that_is_interrupted_leaves_a_page_that_says_what_is_missing(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    def interrupted(kind: str, turn: Turn, directory: Path, plan: Plan) -> None:
        raise KeyboardInterrupt

    last = replace(a_part("last", []), take_turn=interrupted)

    with pytest.raises(KeyboardInterrupt):
        run(monkeypatch, tmp_path, [a_part("first", []), last])

    (page,) = tmp_path.iterdir()
    assert "has not come to its end: last is missing" in (page / "README.md").read_text(encoding="utf-8")


@pytest.mark.usefixtures("without_pictures")
def test_an_interrupted_run_is_resumed_with_the_parts_that_are_missing(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    seen: list[tuple[str, str]] = []
    parts = [a_part("single", seen), a_part("other", seen)]
    interrupted = replace(parts[1], take_turn=raising(KeyboardInterrupt))
    with pytest.raises(KeyboardInterrupt):
        run(monkeypatch, tmp_path, [parts[0], interrupted], "--repeats", "1", "--kinds", "ottla")
    (folder,) = tmp_path.iterdir()

    status, page = run(monkeypatch, tmp_path, parts, "--resume", str(folder))

    assert (status, page) == (0, folder)
    assert seen == [("single", "ottla"), ("other", "ottla")]
    result = json.loads((page / "results.json").read_text())
    assert list(result["parts"]) == ["single", "other"]
    assert "missing" not in result["warning"]
    assert "resumed" in result["machine"]
    assert sorted(file.name for file in page.iterdir()) == ["README.md", "results.json"]


@pytest.mark.usefixtures("without_pictures")
def test_a_run_of_another_commit_and_a_finished_one_are_not_resumed(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    seen: list[tuple[str, str]] = []
    parts = [a_part("single", seen), replace(a_part("other", seen), take_turn=raising(KeyboardInterrupt))]
    facts = machine_facts()
    monkeypatch.setattr(bench, "machine_facts", lambda: {**facts, "commit": "older"})
    with pytest.raises(KeyboardInterrupt):
        run(monkeypatch, tmp_path, parts)
    (folder,) = tmp_path.iterdir()
    monkeypatch.setattr(bench, "machine_facts", lambda: {**facts, "commit": "newer"})

    with pytest.raises(SystemExit):
        bench.main(["--resume", str(folder)])
    with pytest.raises(SystemExit):
        bench.main(["--resume", str(Path(__file__).parent)])

    said = capsys.readouterr().err
    assert "was measured at older, and this is newer" in said
    assert "has no unfinished run" in said
