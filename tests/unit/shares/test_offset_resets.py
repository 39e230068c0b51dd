"""A duration of `share.auto.offset.reset` is that of ISO 8601."""

import pytest

from ottla.config.share_offset_reset import duration_ms


@pytest.mark.parametrize(
    ("text", "ms"),
    [
        ("PT0S", 0),
        ("PT1.5S", 1_500),
        ("PT0.0019S", 1),
        ("PT3M", 180_000),
        ("PT2H", 7_200_000),
        ("P3D", 259_200_000),
        ("P1DT1H1M1.25S", 90_061_250),
        ("p1dt1h", 90_000_000),
    ],
)
def test_durations(text: str, ms: int) -> None:
    assert duration_ms(text) == ms


@pytest.mark.parametrize("text", ["", "P", "PT", "3D", "P3X", "PT1.S", "P-1D", "PT1,5S"])
def test_what_is_no_duration_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="is no duration"):
        duration_ms(text)
