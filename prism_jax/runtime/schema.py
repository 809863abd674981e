"""Types as schemas of JSON values: `pydantic_core` checks the types, and the classes and functions their own values.

A type is a dataclass or a named tuple, or anything that one of its fields may be: a finite number, a text, a boolean,
one of some values (`Literal`), a tuple, a vector, a mapping from texts, an `Object`, `Any`, one of these or None, or
`Annotated[TYPE, ...]` with what messages expect, in words, and with functions that return what the value becomes, or
raise a ValueError such as "found 3, expected at most 2".

Nothing is converted but what JSON writes in two ways: a whole number is a float, a list a tuple. Every key is known and
every required key there. A refusal is one line that names the place, what was found and what was expected.
"""

from __future__ import annotations

import collections.abc
import dataclasses
import difflib
import functools
import reprlib
import types
import typing
from collections.abc import Callable, Collection, Mapping
from typing import TYPE_CHECKING, Annotated, Any

from prism_jax.runtime.files import MOST_LINE_BYTES, JsonError, has_long_integers, parse_json, unencodable
from prism_jax.runtime.written import Label

if TYPE_CHECKING:
    from pydantic_core import SchemaValidator, ValidationError, core_schema

_SCALARS = {
    bool: ("true or false", "true, false or null"),
    float: ("a finite number", "a finite number or null"),
    int: ("a whole number", "a whole number or null"),
    str: ("text", "text or null"),
}
"""What is expected of a scalar, and of one that may be null; `core_schema` names its functions after the types."""
_BOUNDS: dict[type, dict[str, Any]] = {
    bool: {},
    float: {"allow_inf_nan": False},
    int: {"ge": -(2**63), "lt": 2**63},
    # With a bound of its length, a text is one that UTF-8 can encode.
    str: {"max_length": MOST_LINE_BYTES},
}
_EXPECTED = {
    "none_required": "null",
    "tuple_type": "a list",
    "dict_type": "an object with keys",
    "too_long": "a list of two",
    "dataclass_type": "an object with keys",
}
"""What is expected where the library found another error of a type."""
_MOST_KEY = 80
_COLON = rb"\u003"
"""With what a colon within a text is escaped."""


@dataclasses.dataclass(frozen=True, eq=False)
class Object:
    """A JSON object that stays one, with keys of known types beside others.

    It is made once, as a constant of a module: the validator of each is kept.
    """

    types: Mapping[str, Any]
    optional: Collection[str] = ()  # keys that may be missing, or null
    others: Any = Any  # type of the values of all other keys


class Loose:
    """A dataclass whose object may have other keys, too, which are not read."""


def _words(text: str) -> str:
    if not text.strip():
        raise ValueError(f"found {reprlib.repr(text)}, expected words")
    return text


def some(items: tuple[Any, ...]) -> tuple[Any, ...]:
    """A check of a list that may not be empty."""
    if not items:
        raise ValueError("found an empty list, expected at least one entry")
    return items


def between(low: int | float, high: int | float) -> Callable[[Any], Any]:
    """A check of a number, which lies from `low` to `high`."""

    def check(number: Any) -> Any:
        if not low <= number <= high:
            raise ValueError(f"found {number}, expected a number from {low:g} to {high:g}")
        return number

    return check


def positive(number: Any) -> Any:
    """A check of a number, which is above 0."""
    if not number > 0:
        raise ValueError(f"found {number}, expected a number above 0")
    return number


Words = Annotated[str, _words]
"""A text that is not blank."""


def in_words(value: Any) -> str:
    """A value as messages show it."""
    return f"{reprlib.repr(value)} ({type(value).__name__})"


def read_json(data: bytes, place: str, error: type[ValueError] = JsonError) -> Any:
    """What `parse_json` reads, in about two thirds of the time; for lines, of which there are many."""
    from pydantic_core import from_json, to_json  # slow to import, and only what decodes needs it

    try:
        value = from_json(data)
        # The library keeps the last value of a key that is repeated, so that fewer colons are written than were read.
        if data.count(b":") == to_json(value).count(b":") and not has_long_integers(data) and _COLON not in data:
            return value
    except ValueError:
        pass
    return parse_json(data, place, error)  # which says what is wrong


def decode(
    kind: Any,
    value: Any,
    place: str,
    error: type[ValueError] = JsonError,
    shown: Callable[[Any], str] = in_words,
) -> Any:
    """A JSON value, as `read_json` returns it, as the type `kind`.

    Raises `error`, whose message begins with `place`, such as `FILE:LINE` (or nothing), and the place in it, for any
    other value, and for one that a dataclass itself refuses with a ValueError, whose message names the field. `shown`
    says what was found.
    """
    try:
        return _validator(kind).validate_python(value)
    except ValueError as refused:
        words = _message(typing.cast("ValidationError", refused), shown)
        raise error(f"{place}: {words}" if place else words) from refused


@functools.cache
def _validator(kind: Any) -> SchemaValidator:
    from pydantic_core import SchemaValidator

    return SchemaValidator(_schema(kind))


def _schema(kind: Any, *, optional: bool = False) -> core_schema.CoreSchema:
    """The schema of a type, of which messages say whether it may be null, if it is a scalar.

    Containers end at the first error, so that there are few to hold.
    """
    from pydantic_core import core_schema

    if kind is Label:
        return core_schema.no_info_before_validator_function(_number, _schema(float))
    origin, arguments = typing.get_origin(kind), typing.get_args(kind)
    if origin is Annotated:
        schema = _schema(arguments[0], optional=optional)
        for check in arguments[1:]:
            if isinstance(check, str):
                outside = core_schema.list_schema(strict=True) if typing.get_origin(arguments[0]) is tuple else schema
                named = core_schema.custom_error_schema(outside, "other_type", custom_error_message=check)
                schema = core_schema.chain_schema([named, schema])
            else:
                schema = core_schema.no_info_after_validator_function(check, schema)
        return schema
    if origin in (typing.Union, types.UnionType):  # the only unions are `something | None`
        return core_schema.nullable_schema(_schema(arguments[0], optional=True))
    if origin is tuple and arguments[-1] is not ...:  # two of them
        return core_schema.tuple_schema([_schema(of_item) for of_item in arguments], fail_fast=True)
    if origin is tuple:
        return core_schema.tuple_schema([_schema(arguments[0])], variadic_item_index=0, fail_fast=True)
    if origin is typing.Literal:
        expected = f"one of {', '.join(map(repr, arguments))}" if len(arguments) > 1 else repr(arguments[0])
        literal: core_schema.CoreSchema = core_schema.literal_schema(list(arguments))
        if type(arguments[0]) is int:  # such as that of a format, which `true` is not
            literal = core_schema.int_schema(strict=True, ge=arguments[0], le=arguments[0])
        return core_schema.custom_error_schema(literal, "literal", custom_error_message=expected)
    if hasattr(kind, "array_type"):
        import numpy as np

        numbers = core_schema.list_schema(_schema(float), strict=True, fail_fast=True)
        return core_schema.no_info_after_validator_function(np.array, numbers)
    if origin in (dict, collections.abc.Mapping):
        return core_schema.dict_schema(core_schema.str_schema(), _schema(arguments[1]), fail_fast=True)
    if isinstance(kind, Object):
        fields = {}
        for key, of_key in kind.types.items():
            schema, required = _schema(of_key), key not in kind.optional
            schema = schema if required else core_schema.nullable_schema(schema)
            fields[key] = core_schema.typed_dict_field(schema, required=required)
        return core_schema.typed_dict_schema(fields, extra_behavior="allow", extras_schema=_schema(kind.others))
    if dataclasses.is_dataclass(kind) or hasattr(kind, "_fields"):
        return _schema_of_record(typing.cast(type, kind))
    if kind is Any or kind in (None, type(None)):
        return core_schema.any_schema() if kind is Any else core_schema.none_schema()
    scalar = getattr(core_schema, f"{kind.__name__}_schema")(strict=True, **_BOUNDS[kind])
    return core_schema.custom_error_schema(scalar, "scalar_type", custom_error_message=_SCALARS[kind][optional])


def _schema_of_record(kind: Any) -> core_schema.CoreSchema:
    from pydantic_core import core_schema

    hints = typing.get_type_hints(kind, include_extras=True)
    names = kind._fields if hasattr(kind, "_fields") else [field.name for field in dataclasses.fields(kind)]
    schemas = {name: _schema(hints[name]) for name in names}
    if hasattr(kind, "_fields"):
        required = {name: name not in kind._field_defaults for name in schemas}
        of_keys = {name: core_schema.typed_dict_field(schemas[name], required=required[name]) for name in schemas}
        made = core_schema.no_info_after_validator_function(
            lambda values: kind(**values), core_schema.typed_dict_schema(of_keys)
        )
        return core_schema.no_info_before_validator_function(
            functools.partial(_check_keys, dict.fromkeys(schemas)), made
        )
    fields: list[core_schema.DataclassField] = []
    for field in dataclasses.fields(kind):
        schema, default = schemas[field.name], {}
        if field.default is not dataclasses.MISSING:
            default["default"] = field.default
        elif field.default_factory is not dataclasses.MISSING:
            default["default_factory"] = field.default_factory
        if default:
            schema = core_schema.with_default_schema(schema, **default)
        fields.append(core_schema.dataclass_field(field.name, schema, kw_only=True))
    arguments = core_schema.dataclass_args_schema(kind.__name__, fields, extra_behavior="ignore")
    schema = core_schema.dataclass_schema(kind, arguments, list(names), post_init=hasattr(kind, "__post_init__"))
    if issubclass(kind, Loose):
        return schema
    return core_schema.no_info_before_validator_function(functools.partial(_check_keys, dict.fromkeys(names)), schema)


def _check_keys(known: dict[str, None], value: Any) -> Any:
    """The value; the first key that is not known is refused, because the library would hold an error for each."""
    if isinstance(value, dict) and not value.keys() <= known.keys():
        key = next(key for key in value if key not in known)
        similar = difflib.get_close_matches(key[:_MOST_KEY], known, n=1)
        hint = f"{similar[0]!r}" if similar else f"one of {', '.join(known)}"
        shown = key if key.isidentifier() and len(key) <= _MOST_KEY else f"{key!r:.{_MOST_KEY}}"
        raise ValueError(f"{shown}: found an unknown key, expected {hint}")
    return value


def _number(value: Any) -> Any:
    return float(value) if isinstance(value, bool) else value


def _message(refused: ValidationError, shown: Callable[[Any], str]) -> str:
    """The first refusal in words."""
    first = refused.errors(include_url=False)[0]
    place = "".join(f"[{step}]" if isinstance(step, int) else f".{step}" for step in first["loc"]).removeprefix(".")
    if first["type"] == "value_error":  # of a dataclass, which names the field, or of a check of what stands there
        words = str(first["ctx"]["error"])
        between = "" if not place else ": " if words.startswith("found ") else "."
        return f"{place}{between}{words}"
    if first["type"] == "missing":
        return f"{place}: found nothing, expected this {'entry' if place.endswith(']') else 'key'}"
    found, expected = first["input"], _EXPECTED.get(first["type"], first["msg"])
    if isinstance(found, int) and not isinstance(found, bool) and expected in _SCALARS[int]:
        expected = expected.replace("number", "number from -2**63 to 2**63 - 1")
    problem = unencodable(found) if isinstance(found, str) else None
    if problem is None or (expected not in _SCALARS[str] and first["type"] != "string_unicode"):  # the latter of a key
        problem = f"found {shown(found)}, expected {expected}"
    return f"{place}: {problem}" if place else problem
