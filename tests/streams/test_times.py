import datetime

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from prism_jax.streams.times import to_seconds


@settings(deadline=None)
@given(st.lists(st.datetimes(datetime.datetime(2001, 1, 1), datetime.datetime(2001, 12, 31)), min_size=1, max_size=4))
def test_days_and_a_twelve_hour_clock_agree_with_the_standard_library(moments):
    moments = [moment.replace(second=0, microsecond=0) for moment in moments]
    times = [
        f"Day {moment.timetuple().tm_yday}, {moment.strftime('%I:%M %p')[pad:]}"
        for moment in moments
        for pad in [moment.strftime("%I").startswith("0")]  # both "9:05 AM" and "09:05 AM" occur elsewhere
    ]
    expected = tuple((moment - datetime.datetime(2001, 1, 1)).total_seconds() for moment in moments)
    assert to_seconds(times) == expected
    assert to_seconds([f"Day {m.timetuple().tm_yday}, {m.strftime('%I:%M %p')}" for m in moments]) == expected


@settings(deadline=None)
@given(st.lists(st.decimals(0, 2_000_000_000, places=3), min_size=1, max_size=4))
def test_epoch_seconds_are_read_exactly(times):
    assert to_seconds([str(time) for time in times]) == tuple(float(time) for time in times)


def test_midnight_noon_and_the_next_day():
    times = ["Day 1, 12:00 AM", "Day 1, 12:00 PM", "Day 1, 11:59 PM", "Day 2, 12:05 AM"]
    assert to_seconds(times) == (0.0, 43_200.0, 86_340.0, 86_700.0)
    assert to_seconds([]) == ()


@pytest.mark.parametrize(
    "time",
    [
        *("", "noon", "-5", "nan", "inf", "1e9", "1717338232.", "١٢", "Day 0, 1:00 AM", "day 1, 11:00 PM"),
        *(f"Day 1, {clock}" for clock in ("13:00 PM", "0:30 AM", "1:60 AM", "11:00", "11:00 PM ", "1:00 PM\n")),
    ],
)
def test_invalid_times_are_named(time):
    with pytest.raises(ValueError, match=r"^\[1\]\.time: found .*, expected epoch seconds or a time like") as caught:
        to_seconds(["Day 1, 11:00 PM", time])
    assert repr(time) in str(caught.value)
    assert "\n" not in str(caught.value)


def test_a_stream_must_not_mix_time_formats():
    with pytest.raises(ValueError, match=r"^\[2\]\.time: found 'Day 1, 1:00 AM', expected the clock .* '5\.5'$"):
        to_seconds(["5.5", "6", "Day 1, 1:00 AM"])
    with pytest.raises(ValueError, match=r"^\[1\]\.time: found '5', expected the clock .* 'Day 1, 1:00 AM'$"):
        to_seconds(["Day 1, 1:00 AM", "5"])
