"""The bridge from `ml_collections` config files to frozen dataclasses, and back to plain JSON.

A config file in `configs/` returns `to_config_dict(SomeConfig(...))`, so that every key exists and absl flags can
override it (`--config.training.steps=100`). A main converts the result back with `from_config_dict`, which rejects
unknown keys and bad values and names them. The dataclasses check their own values in `__post_init__` and start each
message with the field. What a field means stands in a comment beside it, or in the docstring of its class
(`settings`).
"""

from __future__ import annotations

import ast
import dataclasses
import functools
import inspect
import io
import re
import shlex
import tokenize
import typing
from collections.abc import Callable, Iterator, Mapping
from typing import Any, TypeVar

import ml_collections

from prism_jax.runtime.schema import decode, in_words

T = TypeVar("T")


class ConfigError(ValueError):
    """A config key or value that cannot be used; the message names the key, what was found and what was expected."""


def check(config: Any, name: str, holds: bool, expected: str) -> None:
    """Raises ValueError, with the name and the value of a field of a config and what was expected, unless it holds."""
    if not holds:
        raise ValueError(f"{name}: found {getattr(config, name)!r}, expected {expected}")


def check_shares(config: Any, expected: str, *names: str) -> None:
    """Raises ValueError, naming the first of the fields of a config whose value is outside [0, 1]."""
    for name in names:
        check(config, name, 0 <= getattr(config, name) <= 1, expected)


def check_at_least(config: Any, least: float | int, *names: str) -> None:
    """Raises ValueError, naming the first of the fields of a config whose value is below `least` or NaN."""
    for name in names:
        check(config, name, getattr(config, name) >= least, f"at least {least}")


def check_above(config: Any, bound: float | int, *names: str) -> None:
    """Raises ValueError, naming the first of the fields of a config whose value is not above `bound`, NaN included."""
    for name in names:
        check(config, name, getattr(config, name) > bound, f"above {bound}")


def to_dict(config: Any) -> dict[str, Any]:
    """A config dataclass as nested plain dicts and lists, ready for JSON."""

    def convert(value: Any) -> Any:
        if dataclasses.is_dataclass(value):
            return to_dict(value)
        if isinstance(value, Mapping):
            return {name: convert(section) for name, section in value.items()}
        return list(value) if isinstance(value, tuple) else value

    return {field.name: convert(getattr(config, field.name)) for field in dataclasses.fields(config)}


def to_config_dict(config: Any) -> ml_collections.ConfigDict:
    """A config dataclass as a `ConfigDict` whose every key absl flags can override."""
    hints = _type_hints(type(config))
    tree = {f.name: _overridable(hints[f.name], getattr(config, f.name)) for f in dataclasses.fields(config)}
    return ml_collections.ConfigDict(tree)


def _overridable(kind: Any, value: Any) -> Any:
    """A value of a config as it stands in a `ConfigDict`."""
    if dataclasses.is_dataclass(value):
        return to_config_dict(value)
    if isinstance(value, Mapping):
        return ml_collections.ConfigDict({name: _overridable(None, section) for name, section in value.items()})
    options = [option for option in typing.get_args(kind) if option is not type(None)]
    if value is None and options and options[0] in (int, float, str):
        return ml_collections.config_dict.placeholder(options[0])  # flags cannot set a plain None, which has no type
    return value


def settings(cls: Any, tree: Mapping[str, Any] | ml_collections.ConfigDict, place: str = "--config") -> Iterator[str]:
    """Yields each setting of a dataclass as the flag that gives it its value in a tree, with its meaning as a comment.

    Choices are added where the meaning does not name them all. Values may be such as the dataclass rejects.
    """
    hints, meanings = _type_hints(cls), _meanings(cls)
    for field in dataclasses.fields(cls):
        value, name = tree[field.name], f"{place}.{field.name}"
        if dataclasses.is_dataclass(hints[field.name]):
            yield from settings(hints[field.name], value, name)
            continue
        meaning, choices = meanings.get(field.name, ""), [str(one) for one in typing.get_args(hints[field.name])]
        if typing.get_origin(hints[field.name]) is typing.Literal and not all(one in meaning for one in choices):
            meaning += f" ({', '.join(choices)})"
        words = f'"{value}"' if isinstance(value, tuple) else shlex.quote(str(value))
        yield f"{name}={words}  # {meaning}"


def _meanings(cls: type) -> dict[str, str]:
    """What the fields of a dataclass mean, by its docstring or by the comments above and beside them."""
    attributes = inspect.cleandoc(cls.__doc__ or "").partition("\nAttributes:\n")[2]
    meanings = re.findall(r"^  (\w+): (.*?)(?=^  \w|\Z)", attributes, re.MULTILINE | re.DOTALL)
    found = {name: " ".join(text.split()) for name, text in meanings}
    source = inspect.getsource(cls)
    tokens = tokenize.generate_tokens(io.StringIO(source).readline)
    comments = {token.start[0]: token for token in tokens if token.type == tokenize.COMMENT}
    for node in typing.cast(ast.ClassDef, ast.parse(source).body[0]).body:
        if isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name):
            first, last = node.lineno, node.end_lineno or node.lineno
            while first - 1 in comments and comments[first - 1].line.lstrip().startswith("#"):
                first -= 1
            lines = [comments[line].string.lstrip("# ") for line in range(first, last + 1) if line in comments]
            found |= {node.target.id: " ".join(lines)} if lines else {}
    return found


# Reading a record asks for them each time.
_type_hints: Callable[[type], dict[str, Any]] = functools.cache(typing.get_type_hints)


def from_config_dict(
    cls: type[T],
    tree: Mapping[str, Any] | ml_collections.ConfigDict,
    place: str = "config",
) -> T:
    """Builds the frozen dataclass `cls` from nested mappings; missing keys take its defaults.

    Its fields are numbers, strings, booleans, tuples of these, config dataclasses, or mappings from names to config
    dataclasses. `place` names the mapping in messages. Raises ConfigError for an unknown key (with the nearest known
    one), a missing key that has no default, a value of the wrong type, a number that is not finite, or a value that the
    dataclass itself rejects; always with the full dotted key.
    """
    if not isinstance(tree, Mapping | ml_collections.ConfigDict):
        raise ConfigError(f"{place}: found {in_words(tree)}, expected a section with keys")
    plain = _plain(tree, place)
    try:
        return decode(cls, plain, "", ConfigError)
    except ConfigError as error:
        raise ConfigError(f"{place}.{error}") from error


def _plain(value: Any, place: str) -> Any:
    """A config as plain values, with keys in the order of their names, which is the one that a `ConfigDict` has."""
    if not isinstance(value, Mapping | ml_collections.ConfigDict):
        return value
    for name in value:
        if not isinstance(name, str) or not re.fullmatch(r"[A-Za-z_]\w*", name, re.ASCII):
            raise ConfigError(f"{place}: found a key named {name!r:.80}, expected letters, digits and underscores")
    return {name: _plain(value[name], f"{place}.{name}") for name in sorted(value)}
