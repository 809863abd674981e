"""Personal data and secrets are cut from free text, and ordinary text stays."""

import itertools
import json
import re
import string

import pytest
from hypothesis import given
from hypothesis import strategies as st

from prism_jax.runtime.personal_data import in_json, in_prompt, without_personal_data

CUT = {
    "Write ann.lee+x@mail.example.co.uk today": "Write [e-mail] today",
    "card 4111 1111 1111 1111, cvc": "card [card], cvc",
    "card 4111-1111-1111-1111.": "card [card].",
    "378282246310005": "[card]",
    "call +44 20 7946 0958 or (212) 555-0187 or 212-555-0187": "call [phone] or [phone] or [phone]",
    "key sk-proj-abcdefghijklmnop1234": "key [key]",
    "AKIAIOSFODNN7EXAMPLE in logs": "[key] in logs",
    "ghp_abcdefghijklmnopqrstuvwxyz0123456789": "[key]",
    "xoxb-1234567890-abcdefghij": "[key]",
    "api_key = 'hunter2hunter2'": "api_key = '[key]'",
    "PASSWORD=correct-horse": "PASSWORD=[key]",
    '{"token": "tok3n"}': '{"token": "[key]"}',
    "Authorization: Bearer abc.def.ghi": "Authorization: Bearer [key]",
    "used bearer abcdefghijklmnop": "used bearer [key]",
    "eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxMjM0In0.c2lnbmF0dXJl": "[key]",
    "digest 9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08": "digest [key]",
    "-----BEGIN RSA PRIVATE KEY-----\nMIIB\nAAA\n-----END RSA PRIVATE KEY----- after": "[key] after",
    "open /home/ann/secret plans/x.txt": "open [home] plans/x.txt",
    "at /Users/ann/notes.md:12": "at [home]:12",
    "C:\\Users\\ann\\x.docx and C:/Users/ann": "[home] and [home]",
    "see /root/.ssh/id_rsa": "see [home]",
    "https://ann:s3cr3t@host/x?token=abcd&n=1": "https://[key]@host/x?token=[key]&n=1",
    "https://h/x?X-Amz-Signature=0a1b2c3d": "https://h/x?X-Amz-Signature=[key]",
}
KEPT = (
    "The parser fails at line 4111 of 12 files, 37 % done.",
    "Order 1234 5678 9012 3456 arrived",  # no check digit
    "tokens: 12 per event, the secret of calibration",
    "src/parser/lexer.py:120, runs/homework/Users.md, /usr/lib/python3.11/site-packages",
    "Version 3.14.159, 2026-01-31 12:30:05, 10.0.0.1",
    "pneumonoultramicroscopicsilicovolcanoconiosis",
    "user@host, a @ b, C++ and C#",
    "日本語のテキスト ünïcode",
)


@pytest.mark.parametrize("text", CUT)
def test_what_has_the_shape_of_a_secret_is_cut(text):
    assert without_personal_data(text) == CUT[text]
    assert without_personal_data(CUT[text]) == CUT[text]


@pytest.mark.parametrize("text", KEPT)
def test_ordinary_text_stays(text):
    assert without_personal_data(text) == text


def luhn(digits):
    """The check digit, by the rule as it is usually written: from the right, double every second digit."""
    total = 0
    for place, digit in enumerate(reversed(digits)):
        value = int(digit) * (2 if place % 2 == 0 else 1)
        total += value - 9 if value > 9 else value
    return str(-total % 10)


@given(st.text("0123456789", min_size=12, max_size=18), st.integers(1, 9))
def test_exactly_the_numbers_with_a_right_check_digit_are_cards(digits, change):
    check = luhn(digits)
    assert without_personal_data(f"n {digits}{check}") == "n [card]"
    wrong = str((int(check) + change) % 10)
    assert "[card]" not in without_personal_data(f"n {digits}{wrong}")


@given(st.text())
def test_a_redacted_text_stays_as_it_is(text):
    once = without_personal_data(text)
    assert without_personal_data(once) == once


CANARIES = (
    "canary.ann@example.com",
    "4111 1111 1111 1111",
    "sk-canary0123456789abcdef",
    "ghp_canary0123456789abcdefABCDEF",
    "/home/canary/diary.txt",
    "+44 20 7946 0958",
)


@given(st.lists(st.sampled_from(CANARIES), min_size=1, max_size=5), st.text(" ,;\n\"'()<>", min_size=1, max_size=3))
def test_no_canary_survives_between_other_words(canaries, between):
    text = between.join(["word", *canaries, "word"])
    cleaned = without_personal_data(text)
    assert not [canary for canary in CANARIES if canary in cleaned]
    assert cleaned.startswith("word") and cleaned.endswith("word")


JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-9, 9) | st.sampled_from(CANARIES) | st.text(string.ascii_letters),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text("abc", max_size=3), inner, max_size=3),
    max_leaves=8,
)


@given(JSON, st.booleans())
def test_json_stays_json_and_hides_nothing_in_escapes(value, escaped):
    text = json.dumps(value)
    if escaped:
        text = text.replace("@", "\\u0040").replace("/", "\\/")
    cleaned = in_json(text)
    json.loads(cleaned)
    assert not [canary for canary in CANARIES if canary in json.loads(f'"{_inside(cleaned)}"')]


def _inside(text):
    return json.dumps(text)[1:-1]


def test_text_that_is_no_json_is_cleaned_as_text():
    assert in_json('{"to": "ann@example.com"') == '{"to": "[e-mail]"'


HOSTILE = ("a", "1", "1 ", "a.", "a@", "@a.", "a://", "http://a:b", "-eyJ", "-eyJaaaaaaaa.", "-----BEGIN ", "/home")
HOSTILE += ("token=", "?key=:", "+1 ", "a1-", "SG.aaaaaaaaaaaaaaaa", "C:\\Users\\")


@pytest.mark.parametrize("unit", HOSTILE)
def test_hostile_repetition_ends(unit):
    """A pattern that looks again and again at what it has seen would not end here."""
    text = unit * (300_000 // len(unit))
    assert len(without_personal_data(text)) <= len(text) + len("[home]")


SECRETS = (
    "/home/ann/x",
    "212-555-0187",
    "+44 20 7946 0958",
    "sk-proj-abcdefghijklmnop1234",
    "ann.lee@mail.example.com",
    "4111 1111 1111 1111",
    "bearer abcdefghijklmnop",
    "https://ann:s3cr3t@host/x",
    "9f86d081884c7d659a2feaa0c55ad015a3bf4f1b",
)


@pytest.mark.parametrize("secret", SECRETS)
def test_no_escape_of_json_hides_a_secret_in_a_prompt(secret):
    for before, depth, ascii_only in itertools.product(
        ["\n", "\t", "\r", '"', "\\", "\u2028", " "], [1, 2, 3], [True, False]
    ):
        told = f"saw{before}{secret}"
        for _ in range(depth):
            told = json.dumps(told, ensure_ascii=ascii_only)
        clean = in_prompt(f'Events, a 5" screen:\n{{"event": {told}}}\nAnswer.')
        assert secret not in clean
        # What was JSON is JSON, and only the secret is gone.
        inner = clean.split('{"event": ')[1].split("}\nAnswer.")[0]
        for _ in range(depth):
            inner = json.loads(inner)
        assert re.fullmatch(
            rf"saw{re.escape(before)}(?:\[[a-z-]+\](?:/x)?|bearer \[key\]|https://\[key\]@host/x)", inner
        )


@pytest.mark.parametrize("secret", SECRETS)
def test_no_stray_quote_hides_a_secret_in_a_prompt(secret):
    assert secret not in in_prompt('a 5" screen: ' + json.dumps(f"saw\n{secret}"))


@given(st.text())
def test_a_redacted_prompt_stays_as_it_is_and_ordinary_prompts_do_too(text):
    once = in_prompt(text)
    assert in_prompt(once) == once
    fenced = json.dumps("".join(one for one in text if one.isalpha())[:20])
    assert in_prompt(f"Events: {fenced}") == f"Events: {fenced}"


@pytest.mark.parametrize("text", [*CUT, *KEPT])
def test_searching_only_where_a_match_is_possible_changes_nothing(text):
    """Appends a word for each condition, so that every pattern is searched for."""
    words = "\n@ private key token bearer home Users root"
    assert without_personal_data(text + words) == without_personal_data(text) + words


@pytest.mark.parametrize("text", ["\\" * 20_000, '"\\n' * 10_000, '"' * 20_000, '\\"' * 10_000])
def test_hostile_quotes_take_linear_time(text):
    assert len(in_prompt(text)) >= len(text) // 2
