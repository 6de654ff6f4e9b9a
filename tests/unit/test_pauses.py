"""How long to wait between two looks."""

from __future__ import annotations

from hypothesis import given, strategies as st

from hipq_django.domain.pauses import pause_after

SECONDS = st.floats(0, 1e6)
SHARES = st.floats(0.001, 0.5)


@given(SECONDS, SHARES, SECONDS, SECONDS)
def test_a_pause_lies_between_its_bounds_and_keeps_the_share(
    took: float, share: float, one: float, other: float
) -> None:
    least, most = sorted((one, other))

    pause = pause_after(took, share, least=least, most=most)

    assert least <= pause <= most
    assert pause == most or took / (took + pause + 1e-9) <= share * 1.001
