"""Cuts personal data and secrets from free text: e-mail addresses, card and phone numbers, keys, tokens, home paths.

It is ours because no maintained library fits a process that decides live: presidio and scrubadub load spaCy or
scikit-learn; datafog takes five-digit numbers and dates for personal data and knows no keys; detect-secrets looks for
secrets in source code only. It finds what has a shape. Names, addresses and facts about a person have none, so a
redacted text is not an anonymous one.

Every pattern is bounded or has one way to match, so that hostile text takes linear time. A pattern is only searched for
where the text holds what each of its matches must hold, because most texts hold none of it.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from typing import Any

E_MAIL, CARD, PHONE, KEY, HOME = "[e-mail]", "[card]", "[phone]", "[key]", "[home]"

_START = r"(?:(?<![A-Za-z0-9])|(?<=\\[nrt]))"  # of a word, also after an escape of JSON such as \n
_URL = re.compile(r"(?P<scheme>\b[a-zA-Z][a-zA-Z0-9+]{0,19}://)[^\s/@\"']{1,256}@")

_PRIVATE_KEY = re.compile(
    r"-----BEGIN [A-Z ]{0,40}PRIVATE KEY-----.*?(?:-----END [A-Z ]{0,40}PRIVATE KEY-----|\Z)", re.S
)
_NAMED = re.compile(  # such as api_key: "...", PASSWORD=..., Authorization: Bearer ..., ?X-Amz-Signature=...
    r"(?P<name>(?:(?:api|access)[-_ ]?key|token|secret|passw(?:or)?d|passphrase|authorization|signature|credential)"
    r"\\?[\"']?\s{0,4}[:=]\s{0,4}\\?[\"']?(?:(?:bearer|basic)\s{1,4})?)"
    r"(?!(?:bearer|basic)\s)(?P<value>[^\s\"'\\,;&\[\]{}]{4,})",
    re.I,
)
_NAMES = ("key", "token", "secret", "passw", "passphrase", "authorization", "signature", "credential")
_BEARER = re.compile(rf"(?P<name>{_START}bearer\s{{1,4}})(?P<value>[\w.~+/=-]{{12,}})", re.I)
_SHAPED = re.compile(  # tokens that begin with the name of their kind
    rf"{_START}(?:"
    r"(?:sk|pk|rk)[-_][\w-]{16,}|gh[pousr]_[A-Za-z0-9]{16,}|github_pat_\w{16,}|glpat-[\w-]{16,}|xox[abeoprs]-[\w-]{10,}"
    r"|(?:AKIA|ASIA|ABIA|ACCA)[A-Z0-9]{16}|AIza[\w-]{30,}|ya29\.[\w-]{16,}|hf_[A-Za-z0-9]{16,}|npm_[A-Za-z0-9]{16,}"
    r"|pypi-[\w-]{16,}|SG\.[\w-]{16,}\.[\w-]{16,}|eyJ[\w-]{8,512}\.[\w-]{8,4096}\.[\w-]*"
    r")"
)
_LONG = re.compile(r"(?<![\w+-])[\w+-]{32,}={0,2}")
_E_MAIL = re.compile(r"[\w.!#$%&*+=?^{|}~-]{1,64}@[\w-]{1,63}(?:\.[\w-]{1,63})+")
_CARD = re.compile(r"(?<![\d.])\d(?:[ -]?\d){12,18}(?![\d])")
_PHONE = re.compile(
    r"(?:(?<![\w+])|(?<=\\[nrt]))"
    r"(?:\+\d(?:[ .()/-]{0,2}\d){7,14}|\(\d{3}\) ?\d{3}[ .-]\d{4}|\d{3}[.-]\d{3}[.-]\d{4})(?!\w)"
)
_HOME = re.compile(
    r"(?:(?:(?<![\w.])|(?<=\\[nrt]))/(?:home|Users|root)\b|[A-Za-z]:[\\/]{1,2}Users\b)(?:[\\/]{1,2}[^\s\"'<>()|:;,\\/]+)*"
)

_QUOTED = re.compile(r'"(?:[^"\\\n]|\\[^\n])*+"?')  # one that is not closed is taken whole, and not tried again
_LINE_ENDS = re.compile("[\x7f-\x9f\u2028\u2029]")  # JSON may hold them raw, and some readers end a line at them


def without_personal_data(text: str) -> str:
    """Replaces e-mail addresses, card and phone numbers, keys, tokens and home paths by their kind in brackets.

    User names and passwords in URLs are keys too. A redacted text is left as it is.
    """
    folded = text.casefold()
    if "private key" in folded:
        text = _PRIVATE_KEY.sub(KEY, text)
    if "@" in text:
        text = _URL.sub(rf"\g<scheme>{KEY}@", text)
    if any(word in folded for word in _NAMES):
        text = _NAMED.sub(rf"\g<name>{KEY}", text)
    if "bearer" in folded:
        text = _BEARER.sub(rf"\g<name>{KEY}", text)
    text = _LONG.sub(_long, _SHAPED.sub(KEY, text))
    if "@" in text:
        text = _E_MAIL.sub(E_MAIL, text)
    text = _PHONE.sub(PHONE, _CARD.sub(_card, text))
    if any(folder in text for folder in ("home", "Users", "root")):
        text = _HOME.sub(HOME, text)
    return text


def in_prompt(text: str, clean: Callable[[str], str] = without_personal_data) -> str:
    r"""Cleans a text that quotes others as JSON strings, in which escapes such as \n or \u0040 could hide them.

    Whatever stands between double quotes on one line and is a JSON string is read as one.
    """
    return clean(_QUOTED.sub(lambda match: _requoted(match[0], clean), text) if "\\" in text else text)


def _requoted(quoted: str, clean: Callable[[str], str]) -> str:
    """A JSON string with its text cleaned; one without escapes is left to the cleaning of the whole text."""
    if "\\" not in quoted:
        return quoted
    try:
        inner = json.loads(quoted)
    except ValueError:
        return quoted
    cleaned = in_prompt(inner, clean)
    if cleaned == inner:
        return quoted
    return _LINE_ENDS.sub(lambda match: f"\\u{ord(match[0]):04x}", json.dumps(cleaned, ensure_ascii=False))


def in_json(text: str, clean: Callable[[str], str] = without_personal_data) -> str:
    r"""Cleans the texts inside a JSON value, where escapes such as \u0040 could hide them; other text as it is."""
    try:
        value = json.loads(text)
    except ValueError:
        return clean(text)
    return json.dumps(_mapped(value, clean), ensure_ascii=False)


def _mapped(value: Any, clean: Callable[[str], str]) -> Any:
    if isinstance(value, str):
        return clean(value)
    if isinstance(value, list):
        return [_mapped(item, clean) for item in value]
    if isinstance(value, dict):
        return {clean(key): _mapped(item, clean) for key, item in value.items()}
    return value


def _long(match: re.Match[str]) -> str:
    """Long runs of letters and digits together are keys and digests; long words and numbers are not."""
    run = match[0]
    return KEY if any(map(str.isdigit, run)) and any(map(str.isalpha, run)) else run


def _card(match: re.Match[str]) -> str:
    """Card numbers end in a check digit (Luhn): every second digit from the right doubled, the sum divides by 10."""
    digits = [int(character) for character in match[0] if character.isdigit()]
    total = sum(digits[-1::-2]) + sum(sum(divmod(2 * digit, 10)) for digit in digits[-2::-2])
    return CARD if total % 10 == 0 else match[0]
