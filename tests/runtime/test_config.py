import dataclasses
import json
import math
import re
import shlex
import sys
from collections.abc import Mapping
from typing import Literal

import ml_collections
import pytest
from absl import flags
from hypothesis import given
from hypothesis import strategies as st
from ml_collections import config_flags

from prism_jax.decision.policies import DEPLOYABLE
from prism_jax.runtime.dataclass_config import ConfigError, from_config_dict, settings, to_config_dict, to_dict
from prism_jax.training.run_config import RunConfig, TrainingConfig


@dataclasses.dataclass(frozen=True)
class Engine:
    power: float = 1.5
    cylinders: int = 4
    fuel: Literal["petrol", "diesel"] = "petrol"

    def __post_init__(self):
        if self.power <= 0:
            raise ValueError(f"power: found {self.power}, expected above 0")


@dataclasses.dataclass(frozen=True)
class Car:
    name: str = "car"
    used: bool = False
    doors: int | None = None
    gears: tuple[float, ...] = (3.5, 2.0)
    tags: tuple[str, ...] = ()
    engine: Engine = dataclasses.field(default_factory=Engine)


@dataclasses.dataclass(frozen=True)
class Wheel:
    maker: str
    inches: int | None = None
    pressure: float | None = 2.2

    def __post_init__(self):
        if self.inches is not None and self.inches <= 0:
            raise ValueError(f"inches: found {self.inches}, expected above 0")


@dataclasses.dataclass(frozen=True)
class Lamp:
    """A lamp.

    Attributes:
      colour: Colour of the light,
        as seen at night.
      watts: Power.
    """

    colour: str = "#ff0 'warm'"
    watts: float = 4.5
    # How it is switched on:
    # by hand, or by itself.
    switch: Literal["hand", "dusk"] = "hand"

    # nobody reads this

    wired: bool = True  # whether it has a cable # and a plug


@dataclasses.dataclass(frozen=True)
class Garage:
    wheels: Mapping[str, Wheel]
    owner: str | None = None


INTEGERS = st.integers(-(2**63), 2**63 - 1)
FINITE = st.floats(allow_nan=False, allow_infinity=False)
engines = st.builds(
    Engine,
    power=st.floats(min_value=1e-300, allow_infinity=False),
    cylinders=INTEGERS,
    fuel=st.sampled_from(["petrol", "diesel"]),
)
cars = st.builds(
    Car,
    name=st.text(),
    used=st.booleans(),
    doors=st.none() | INTEGERS,
    gears=st.lists(FINITE, max_size=3).map(tuple),
    tags=st.lists(st.text(), max_size=3).map(tuple),
    engine=engines,
)


@given(cars)
def test_round_trip_through_config_dict_and_json(car):
    assert from_config_dict(Car, to_config_dict(car)) == car
    assert from_config_dict(Car, json.loads(json.dumps(to_dict(car)))) == car


NAMES = st.from_regex(r"[A-Za-z_][A-Za-z0-9_]{0,8}", fullmatch=True).filter(lambda name: not hasattr({}, name))
wheels = st.builds(Wheel, st.text(), st.none() | st.integers(1, 99), st.none() | FINITE)
garages = st.builds(Garage, st.dictionaries(NAMES, wheels, max_size=3), st.none() | st.text())


@given(garages)
def test_named_sections_round_trip_in_the_order_of_their_names(garage):
    for tree in (to_config_dict(garage), json.loads(json.dumps(to_dict(garage)))):
        again = from_config_dict(Garage, tree)
        assert again == garage
        assert list(again.wheels) == sorted(garage.wheels)


@pytest.mark.parametrize(
    ("tree", "message"),
    [
        ({}, "config.wheels: found nothing, expected this key"),
        ({"wheels": {"front": {"makr": "x"}}}, "config.wheels.front.makr: found an unknown key, expected 'maker'"),
        ({"wheels": {"front": {"maker": "x", "inches": 0}}}, "config.wheels.front.inches: found 0, expected above 0"),
        (
            {"wheels": {"4-front": {"maker": "x"}}},
            "config.wheels: found a key named '4-front', expected letters, digits and underscores",
        ),
    ],
)
def test_bad_named_sections_are_one_line_errors_that_name_the_key(tree, message):
    with pytest.raises(ConfigError, match=f"^{re.escape(message)}$"):
        from_config_dict(Garage, tree)
    with pytest.raises(ConfigError, match=f"^{re.escape(message)}$"):
        from_config_dict(Garage, ml_collections.ConfigDict(tree))


def test_to_dict_is_plain_json_of_every_field():
    assert to_dict(Car()) == {
        "name": "car",
        "used": False,
        "doors": None,
        "gears": [3.5, 2.0],
        "tags": [],
        "engine": {"power": 1.5, "cylinders": 4, "fuel": "petrol"},
    }


def test_missing_keys_take_defaults():
    assert from_config_dict(Car, {}) == Car()
    assert from_config_dict(Car, {"engine": {"cylinders": 2}}) == Car(engine=Engine(cylinders=2))


def test_whole_number_serves_as_a_float_and_a_built_section_as_itself():
    car = from_config_dict(Car, {"gears": [3, 2], "engine": Engine(power=2.0)})
    assert car == Car(gears=(3.0, 2.0), engine=Engine(power=2.0))
    assert all(type(gear) is float for gear in car.gears)


@pytest.mark.parametrize(
    ("tree", "message"),
    [
        ({"engine": {"cylinder": 4}}, "config.engine.cylinder: found an unknown key, expected 'cylinders'"),
        ({"engine": {"zzz": 4}}, "config.engine.zzz: found an unknown key, expected one of power, cylinders, fuel"),
        (
            {"doors": 2**63},
            "config.doors: found 9223372036854775808 (int), expected a whole number from -2**63 to 2**63 - 1 or null",
        ),
        ({"engine": {"power": -1.0}}, "config.engine.power: found -1.0, expected above 0"),
        ({"engine": {"fuel": "coal"}}, "config.engine.fuel: found 'coal' (str), expected one of 'petrol', 'diesel'"),
        ({"gears": "12"}, "config.gears: found '12' (str), expected a list"),
        ({"gears": [1.0, math.nan]}, "config.gears[1]: found nan (float), expected a finite number"),
    ],
)
def test_bad_trees_are_one_line_errors_that_name_the_key(tree, message):
    with pytest.raises(ConfigError, match=f"^{re.escape(message)}$"):
        from_config_dict(Car, tree)
    with pytest.raises(ConfigError, match=f"^{re.escape(message)}$"):
        from_config_dict(Car, ml_collections.ConfigDict(tree))


def test_the_place_in_messages_can_be_named():
    with pytest.raises(ConfigError, match=r"^run\.json\.engine\.power: found -1\.0, expected above 0$"):
        from_config_dict(Car, {"engine": {"power": -1.0}}, "run.json")


FLOATS = [
    f"{section}.{key}"
    for section, values in to_dict(RunConfig()).items()
    for key, value in values.items()
    if isinstance(value, float)
]


@pytest.mark.parametrize("bad", [math.inf, -math.inf, math.nan])
def test_every_number_of_a_run_is_finite(bad):
    assert {"loss.burden", "training.learning_rate", "student.rope_theta", "simulator.hidden_effect"} <= set(FLOATS)
    for place in FLOATS:
        section, key = place.split(".")
        with pytest.raises(ConfigError, match=rf"^config.{place}: found {bad} \(float\), expected a finite number$"):
            from_config_dict(RunConfig, {section: {key: bad}})


@pytest.mark.parametrize(
    ("section", "values", "message"),
    [
        ("data", {"folds": 0, "fold": -4}, "config.data.folds: found 0, expected at least 2"),
        ("data", {"folds": 1}, "config.data.folds: found 1, expected at least 2"),
        ("data", {"fold": 4}, "config.data.fold: found 4, expected 0 to 3 (folds = 4)"),
        ("data", {"fold": -1}, "config.data.fold: found -1, expected 0 to 3 (folds = 4)"),
        ("data", {"calibration": 0.0}, "config.data.calibration: found 0.0, expected a share between 0 and 1"),
        ("data", {"calibration": 1}, "config.data.calibration: found 1.0, expected a share between 0 and 1"),
        ("data", {"name": "jsonl"}, "config.data.source: found none, expected a path for data.name = 'jsonl'"),
        ("loss", {"e_min": 0.0}, "config.loss.e_min: found 0.0, expected a probability in (0, 1]"),
        ("loss", {"e_min": 1.5}, "config.loss.e_min: found 1.5, expected a probability in (0, 1]"),
    ],
)
def test_values_of_a_run_out_of_range_are_refused_by_key(section, values, message):
    with pytest.raises(ConfigError, match=f"^{re.escape(message)}$"):
        from_config_dict(RunConfig, {section: values})


@pytest.fixture
def override(monkeypatch):
    """Parses command-line flags as absl does, and returns the resulting config."""

    def parse(*arguments, default=None):
        default = default or Car()
        monkeypatch.setattr(sys, "argv", ["program", *arguments])  # where config_flags looks for overrides
        values = flags.FlagValues()
        config = config_flags.DEFINE_config_dict("config", to_config_dict(default), flag_values=values)
        values(sys.argv)
        return from_config_dict(type(default), config.value)

    return parse


def test_flags_override_every_kind_of_value(override):
    car = override(
        "--config.name=van",
        "--config.used=true",
        "--config.engine.power=2",
        "--config.engine.fuel=diesel",
        "--config.gears=(4.0, 2.5, 1.0)",
    )
    assert car == Car("van", True, None, (4.0, 2.5, 1.0), (), Engine(2.0, 4, "diesel"))


def test_flags_override_named_sections_and_values_that_are_none(override):
    garage = Garage({"front": Wheel("a"), "rear": Wheel("b", pressure=None)})
    arguments = ("--config.wheels.front.maker=c", "--config.wheels.rear.inches=17", "--config.wheels.rear.pressure=2")
    changed = override(*arguments, "--config.owner=ann", default=garage)
    assert changed == Garage({"front": Wheel("c"), "rear": Wheel("b", 17, 2.0)}, "ann")
    with pytest.raises(ConfigError, match=r"^config\.wheels\.rear\.inches: found -1, expected above 0$"):
        override("--config.wheels.rear.inches=-1", default=garage)
    with pytest.raises(KeyError, match="back"):
        override("--config.wheels.back.maker=x", default=garage)


def test_epochs_become_the_steps_that_see_every_row_that_often():
    training = TrainingConfig(steps=0, epochs=3.0, batch=4)
    assert training.over(2.5).steps == 8  # 10 rows, 30 in all
    assert training.over(2.5).epochs == 0
    assert TrainingConfig(steps=7).over(2.5).steps == 7


def test_settings_are_listed_with_what_their_comments_and_docstrings_say():
    assert [*settings(Lamp, dataclasses.asdict(Lamp()), "--lamp")] == [
        """--lamp.colour='#ff0 '"'"'warm'"'"''  # Colour of the light, as seen at night.""",
        "--lamp.watts=4.5  # Power.",
        "--lamp.switch=hand  # How it is switched on: by hand, or by itself. (hand, dusk)",
        "--lamp.wired=True  # whether it has a cable # and a plug",
    ]


def test_every_setting_of_a_run_has_a_meaning_and_is_set_by_the_flag_that_lists_it():
    config = RunConfig(training=TrainingConfig(frozen=("embedding", "layers/0/.*"), start="my runs/first"))
    lines = [*settings(RunConfig, to_config_dict(config))]
    assert all(re.fullmatch(r"--config\.\S+=.*?  # .{5,}", line) for line in lines)
    assert all(name in next(line for line in lines if "decision.policy" in line) for name in DEPLOYABLE)
    argv = ["main", *(shlex.split(line, comments=True)[0] for line in lines)]
    values = flags.FlagValues()
    holder = config_flags.DEFINE_config_dict("config", to_config_dict(RunConfig()), flag_values=values, sys_argv=argv)
    values(argv)
    assert from_config_dict(RunConfig, holder.value) == config
    (tree := to_config_dict(RunConfig())).data.name = "jsonl"  # which a run without a source refuses
    assert any(line.startswith("--config.data.name=jsonl ") for line in settings(RunConfig, tree))
