"""A printed number, its unit, and the values that it may stand for."""

from decimal import ROUND_DOWN, ROUND_HALF_EVEN, ROUND_HALF_UP, Decimal
from fractions import Fraction

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from studies.audit_tables.cells import as_percentage, parse

READ = {
    "78.81%": (Fraction("78.81"), Fraction("0.01"), True),
    r"78.81\%": (Fraction("78.81"), Fraction("0.01"), True),
    "**0.920**": (Fraction("0.92"), Fraction("0.001"), False),
    "100%": (Fraction(100), Fraction(1), True),
    "+3.1": (Fraction("3.1"), Fraction("0.1"), False),
    "−4.70 %": (Fraction("-4.7"), Fraction("0.01"), True),
    "1,800": (Fraction(1800), Fraction(1), False),
    "176ms": (Fraction(176), Fraction(1), False),
    "<0.001": (Fraction("0.001"), Fraction("0.001"), False),
    "~11%": (Fraction(11), Fraction(1), True),
    ".5": (Fraction("0.5"), Fraction("0.1"), False),
    "2.5e-05": (Fraction("0.000025"), Fraction("0.000001"), False),
}


@pytest.mark.parametrize("text", READ)
def test_a_number_is_read_with_its_last_digit(text):
    printed, percent = parse(text)
    assert (printed.value, printed.unit, percent) == READ[text]


@pytest.mark.parametrize("text", ["", "-", "–", "—", "--", "N/A", "nan"])
def test_a_blank_is_no_number(text):
    assert parse(text) is None


@pytest.mark.parametrize("text", ["abc", "1.2.3", "12,34", "5 apples", "1" * 80, "%", "0x10", "٣"])
def test_anything_else_is_an_error(text):
    with pytest.raises(ValueError, match="expected a number such as"):
        parse(text)


def test_lost_zeros_come_back_with_the_number_of_decimals():
    assert parse("100%", 2)[0].unit == Fraction("0.01")
    assert parse("71.085", 2)[0].unit == Fraction("0.001")


@settings(max_examples=60)
@given(
    st.fractions(-1, 1, max_denominator=10**6),
    st.integers(0, 6),
    st.sampled_from([("rounded", ROUND_HALF_EVEN), ("rounded", ROUND_HALF_UP), ("truncated", ROUND_DOWN)]),
)
def test_a_number_lies_in_the_interval_of_what_is_printed_of_it(value, decimals, how):
    reading, rounding = how
    text = str((100 * Decimal(value.numerator) / value.denominator).quantize(Decimal(1).scaleb(-decimals), rounding))
    printed = as_percentage(parse(f"{text}%")[0])
    if printed.value == 0 > value:
        return  # the sign of a truncated number is lost
    for one in (reading, "loose"):
        low, high = printed.interval(one)
        assert low <= value <= high
