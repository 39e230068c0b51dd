"""The folders of jars that tests have Maven fill once."""

from pathlib import Path

import pytest

from tests.support.apache_kafka import jars


def test_jars_are_fetched_once_and_again_when_the_pom_has_changed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    there = jars.Availability(True, "")
    monkeypatch.setattr(jars, "java_available", lambda: there)
    monkeypatch.setattr(jars, "maven_available", lambda: there)
    monkeypatch.setattr(jars, "_fetch", lambda pom, libs: (libs / f"client-{pom.read_text()}.jar").touch())
    pom, libs = tmp_path / "pom.xml", tmp_path / "libs"
    pom.write_text("1")
    jars.ensure_jars_of(pom, libs)
    assert [each.name for each in libs.glob("*.jar")] == ["client-1.jar"]
    monkeypatch.setattr(jars, "maven_available", lambda: jars.Availability(False, "no Maven"))
    jars.ensure_jars_of(pom, libs)
    pom.write_text("2")
    with pytest.raises(jars.ToolMissingError):
        jars.ensure_jars_of(pom, libs)
    assert [each.name for each in libs.glob("*.jar")] == ["client-1.jar"]
    monkeypatch.setattr(jars, "maven_available", lambda: there)
    jars.ensure_jars_of(pom, libs)
    assert [each.name for each in libs.glob("*.jar")] == ["client-2.jar"]


def test_a_folder_with_an_empty_marker_is_taken_as_it_is(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(jars, "java_available", lambda: jars.Availability(True, ""))
    monkeypatch.setattr(jars, "maven_available", lambda: jars.Availability(False, "no Maven"))
    pom = tmp_path / "pom.xml"
    pom.write_text("1")
    (tmp_path / ".complete").touch()
    assert jars.ensure_jars_of(pom, tmp_path) == tmp_path
    pom.write_text("2")
    with pytest.raises(jars.ToolMissingError):
        jars.ensure_jars_of(pom, tmp_path)
