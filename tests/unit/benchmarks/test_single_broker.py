"""The command: what it refuses."""

import pytest

from benchmarks.single_broker import main


@pytest.mark.parametrize(("arguments", "complaint"), [(["--kinds", "pulsar"], "no such kind"), (["--only", "sums"], "no such load")])
def test_unknown_kinds_and_loads_are_refused(arguments: list[str], complaint: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main(arguments)

    assert complaint in capsys.readouterr().err
