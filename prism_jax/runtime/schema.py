"""Dataclasses as schemas of JSON values: `pydantic_core` checks types, and the dataclass its own values.

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
from typing import Any, TypeVar

import pydantic_core
from pydantic_core import core_schema

from prism_jax.runtime.files import JsonError
from prism_jax.runtime.written import Label

T = TypeVar("T")

_EXPECTED = {
    "float_type": "a number",
    "int_type": "a whole number",
    "string_type": "text",
    "bool_type": "true or false",
    "tuple_type": "a list",
    "dict_type": "an object with keys",
    "dataclass_type": "an object with keys",
}
"""What is expected where the library found an error of a type."""
_SCALARS: dict[type, Any] = {
    bool: core_schema.bool_schema,
    float: core_schema.float_schema,
    int: core_schema.int_schema,
    str: core_schema.str_schema,
}


def decode(kind: type[T], value: Any, error: type[ValueError] = JsonError, whole: str = "the value") -> T:
    """A JSON value, as `parse_json` returns it, as the dataclass `kind`.

    Its fields are numbers, texts, booleans, tuples, mappings from texts, other dataclasses, or one of these or None.
    Raises `error`, whose message begins with the place within the value, or with `whole`, for any other value, and for
    one that a dataclass itself refuses with a ValueError, whose message names the field.
    """
    try:
        return _validator(typing.cast(Any, kind)).validate_python(value)
    except pydantic_core.ValidationError as refused:
        raise error(_message(refused, whole)) from refused


@functools.cache
def _validator(kind: type) -> pydantic_core.SchemaValidator:
    return pydantic_core.SchemaValidator(_schema(kind))


def _schema(kind: Any) -> core_schema.CoreSchema:
    """The schema of an annotated type. Containers end at the first error, so that there are few to hold."""
    origin, arguments = typing.get_origin(kind), typing.get_args(kind)
    if origin in (typing.Union, types.UnionType):  # the only unions are `something | None`
        return core_schema.nullable_schema(_schema(arguments[0]))
    if kind is Label:
        return core_schema.no_info_before_validator_function(_number, _schema(float))
    if origin is tuple:
        return core_schema.tuple_schema([_schema(arguments[0])], variadic_item_index=0, fail_fast=True)
    if origin is collections.abc.Mapping:
        return core_schema.dict_schema(_schema(arguments[0]), _schema(arguments[1]), fail_fast=True)
    if dataclasses.is_dataclass(kind):
        return _schema_of_record(typing.cast(type, kind))
    return _SCALARS[kind](strict=True)


def _schema_of_record(kind: type) -> core_schema.CoreSchema:
    hints, fields = typing.get_type_hints(kind, include_extras=True), []
    for field in dataclasses.fields(kind):
        schema, default = _schema(hints[field.name]), {}
        if field.default is not dataclasses.MISSING:
            default["default"] = field.default
        elif field.default_factory is not dataclasses.MISSING:
            default["default_factory"] = field.default_factory
        if default:
            schema = core_schema.with_default_schema(schema, **default)
        fields.append(core_schema.dataclass_field(field.name, schema, kw_only=True))
    names = [field["name"] for field in fields]
    schema = core_schema.dataclass_schema(
        kind, core_schema.dataclass_args_schema(kind.__name__, fields), names, post_init=hasattr(kind, "__post_init__")
    )
    return core_schema.no_info_before_validator_function(functools.partial(_check_keys, dict.fromkeys(names)), schema)


def _check_keys(known: dict[str, None], value: Any) -> Any:
    """The value; the first key that is not known is refused, because the library would hold an error for each."""
    if isinstance(value, dict) and not value.keys() <= known.keys():
        key = next(key for key in value if key not in known)
        similar = difflib.get_close_matches(key, known, n=1)
        hint = f"{similar[0]!r}" if similar else f"one of {', '.join(known)}"
        shown = key.encode(errors="backslashreplace").decode()  # it may hold one half of a surrogate pair
        raise ValueError(f"{shown}: found an unknown key, expected {hint}")
    return value


def _number(value: Any) -> Any:
    return float(value) if isinstance(value, bool) else value


def _message(refused: pydantic_core.ValidationError, whole: str) -> str:
    """The first refusal in words."""
    first = refused.errors(include_url=False)[0]
    place = "".join(f"[{step}]" if isinstance(step, int) else f".{step}" for step in first["loc"])[1:]
    if first["type"] == "value_error":  # of a dataclass, which names the field
        return f"{place}.{first['ctx']['error']}" if place else str(first["ctx"]["error"])
    if first["type"] == "missing":
        return f"{place}: found nothing, expected this key"
    found, expected = first["input"], _EXPECTED[first["type"]]
    return f"{place or whole}: found {reprlib.repr(found)} ({type(found).__name__}), expected {expected}"
