"""How often a node may run."""

from datetime import UTC, datetime, timedelta

from hypothesis import given, strategies as st

from hipq_django.flow.rate import MINUTE, take_run, turn_of

NOW = datetime(2026, 12, 24, 18, tzinfo=UTC)


@given(st.sampled_from([1, 2, 5, 600]), st.integers(1, 20))
def test_a_node_that_runs_again_and_again_keeps_the_rate(per_minute: int, more: int) -> None:
    now, full_again = NOW, NOW
    starts: list[datetime] = []
    for _ in range(per_minute + more):
        now, full_again = take_run(full_again, per_minute, now)
        starts.append(now)

    assert starts[:per_minute] == [NOW] * per_minute
    assert starts[per_minute:] == [
        NOW + MINUTE / per_minute * number for number in range(1, more + 1)
    ]


@given(st.sampled_from([1, 2, 5, 600]), st.integers(121, 10**8))
def test_what_a_clock_that_was_ahead_has_noted_is_forgotten(per_minute: int, ahead: int) -> None:
    noted = NOW + MINUTE + timedelta(seconds=ahead)

    assert take_run(noted, per_minute, NOW) == take_run(NOW, per_minute, NOW)
    assert turn_of(noted, NOW) == NOW
