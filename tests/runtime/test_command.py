"""How mains end: one line on stderr for any error, with its place, and the traceback only where it is asked for."""

import errno
import re

import forked
import pytest
from absl import flags
from ml_collections import config_flags

from prism_jax.decision.calibration import CalibrationWarning
from prism_jax.runtime import command

MAIN = """
import sys
from absl import flags
from ml_collections import config_flags
from prism_jax.runtime import command
from prism_jax.runtime.dataclass_config import from_config_dict

config_flags.DEFINE_config_file("config", None, "")
flags.DEFINE_string("workdir", None, "")
flags.mark_flag_as_required("config")

def main():
    {body}

command.start(main)
"""
CONFIG = """
import ml_collections

def get_config():
    return ml_collections.ConfigDict({"training": {"steps": 4, "warmup": 0.1}})
"""
CONFIG_FILES = {
    "no config": ("def get_config():\n    return 3\n", "FILE: get_config() returned 3, expected the result of"),
    "nothing": ("def get_config():\n    pass\n", "FILE: get_config() returned None, expected the result of"),
    "no function": ("steps = 3\n", "FILE: found no get_config, expected a function get_config()"),
    "import": ("\nimport not_there\n", "FILE:2: ModuleNotFoundError: No module named 'not_there'"),
    "syntax": ("\n\ndef get_config(:\n", "FILE:3: SyntaxError: invalid syntax"),
    "value": ("def get_config():\n    return int('four')\n", "FILE:2: ValueError: invalid literal for int()"),
    "division": ("def get_config():\n    return 1 / 0\n", "FILE:2: ZeroDivisionError: division by zero"),
}
OVERRIDES = {
    "--config.training.wramup=1": "--config.training.wramup: found no setting 'wramup' in the config; did you mean",
    "--config.trainin.steps=1": "--config.trainin.steps: found no setting 'trainin' in the config; did you mean",
    "--config.training.steps.x=1": "--config.training.steps.x: found no setting 'x' in the config",
    "--config.words.nope=1": "--config.words.nope: found no setting 'words' in the config",
    "--config.training.steps=four": "flag --config.training.steps=four: invalid literal for int()",
}


def run(folder, *arguments, config=CONFIG, body="pass"):
    main = folder / "main.py"
    main.write_text(MAIN.replace("{body}", body))
    (folder / "config.py").write_text(config)
    return forked.run(main, f"--config={folder / 'config.py'}", *arguments)


def the_line(done):
    """The last line of stderr; nothing but absl's own warning may stand before it."""
    *before, line = done.stderr.splitlines()
    assert done.returncode == 1
    assert all("WARNING" in text or "did you forget a return" in text for text in before), done.stderr
    return line


@pytest.mark.parametrize("case", CONFIG_FILES)
def test_a_config_file_that_cannot_be_used_is_named_with_its_line(tmp_path, case):
    content, message = CONFIG_FILES[case]
    line = the_line(run(tmp_path, config=content))
    assert line.startswith("error: " + message.replace("FILE", str(tmp_path / "config.py")))


def test_a_config_file_that_is_not_there_is_named(tmp_path):
    line = the_line(run(tmp_path, "--config", tmp_path / "other.py"))
    assert line.startswith(f"error: --config: {tmp_path / 'other.py'}: no such file, expected")


@pytest.mark.parametrize("override", OVERRIDES)
def test_an_override_that_cannot_be_used_names_its_flag(tmp_path, override):
    line = the_line(run(tmp_path, override))
    assert line.startswith(f"error: {OVERRIDES[override]}")
    assert "\\n" not in line


@pytest.mark.parametrize(
    ("override", "message"),
    [
        ("warmup=1", "warmup: found no setting 'warmup' in the config; did you mean --config.training.warmup?"),
        (
            "trainings.steps=1",
            "trainings.steps: found no setting 'trainings' in the config; did you mean --config.trai",
        ),
        ("training.lr=1", "training.lr: found no setting 'lr' in the config, expected one of steps, warmup"),
        ("training.warm-up=1", "training.warm-up: found no setting 'warm-up' in the config; did you mean 'warmup'?"),
    ],
)
def test_a_setting_that_is_not_there_comes_with_the_one_that_was_meant(tmp_path, monkeypatch, override, message):
    (tmp_path / "config.py").write_text(CONFIG)
    argv, given = ["main", f"--config={tmp_path / 'config.py'}", f"--config.{override}"], flags.FlagValues()
    config_flags.DEFINE_config_file("config", None, "", flag_values=given, sys_argv=argv)
    with pytest.raises(Exception) as raised:
        given(argv)
    monkeypatch.setattr(flags, "FLAGS", given)
    assert command.explain(raised.value, argv).startswith(f"--config.{message}")


@pytest.mark.parametrize("named", [True, False])
def test_a_flag_that_is_a_setting_without_its_section_comes_with_it(tmp_path, monkeypatch, named):
    file = tmp_path / "config.py"
    file.write_text(CONFIG)
    argv, given = ["main", *[f"--config={file}"] * named, "--steps=2"], flags.FlagValues()
    config_flags.DEFINE_config_file("config", None, "", flag_values=given, sys_argv=argv)
    with pytest.raises(flags.UnrecognizedFlagError) as raised:
        given(argv)
    monkeypatch.setattr(flags, "FLAGS", given)
    assert command.explain(raised.value, argv, str(file)).endswith("'steps'; did you mean --config.training.steps?")


def test_a_setting_without_the_config_file_asks_for_it(monkeypatch):
    argv, given = ["main", "--config.training.steps=7"], flags.FlagValues()
    config_flags.DEFINE_config_file("config", None, "", flag_values=given, sys_argv=argv)
    with pytest.raises(flags.Error) as raised:
        given(argv)
    monkeypatch.setattr(flags, "FLAGS", given)
    expected = (
        "--config.training.steps: found it without --config=FILE, expected the config file whose setting it changes"
    )
    assert command.explain(raised.value, argv) == expected


def test_a_warning_of_ours_is_one_line_without_its_place_in_the_code():
    ours = command._in_one_line(CalibrationWarning("p_need: found\n T"), CalibrationWarning, "labels.py", 173)
    assert ours == "warning: p_need: found T\n"
    assert "x.py:7: UserWarning" in command._in_one_line(UserWarning("y"), UserWarning, "x.py", 7)


@pytest.mark.parametrize(
    ("names", "message"),
    [
        (["workdir"], "--workdir: found no value, expected one (see --help)"),
        (["scores", "promise"], "--scores, --promise: found no values, expected them (see --help)"),
    ],
)
def test_required_flags_that_are_missing_are_named_together(names, message):
    given = flags.FlagValues()
    for name in names:
        flags.DEFINE_string(name, None, "", flag_values=given)
    flags.mark_flags_as_required(names, flag_values=given)
    with pytest.raises(flags.Error) as raised:
        given(["main"])
    assert command.explain(raised.value, ["main"]) == message


def test_a_rule_for_several_flags_is_said_without_their_values():
    values, rule = flags.FlagValues(), "expected at most one of --a and --b"
    for name in "ab":
        flags.DEFINE_string(name, "of: a\nconfig: file", "", flag_values=values)
    flags.register_multi_flags_validator(["a", "b"], lambda _: False, rule, flag_values=values)
    with pytest.raises(flags.IllegalFlagValueError, match="config: file") as error:
        values(["main.py"])
    assert command.explain(error.value, ["main.py"]) == rule


def test_an_error_that_nobody_foresaw_is_one_line_and_its_traceback_is_asked_for(tmp_path):
    done = run(tmp_path, body="{}['key']")
    place = tmp_path / "main.py"
    line = f"error: unexpected KeyError in {place}:13: 'key' (--verbosity=1 shows the traceback)"
    assert the_line(done) == line
    done = run(tmp_path, "--verbosity=1", body="{}['key']")
    assert done.returncode == 1
    assert "Traceback" in done.stderr and "KeyError: 'key'" in done.stderr


def test_a_broken_config_file_shows_its_traceback_where_it_is_asked_for(tmp_path):
    done = run(tmp_path, "--verbosity=1", config="import not_there\n")
    assert "Traceback" in done.stderr and done.stderr.splitlines()[-1].startswith("error: ")


def test_a_link_to_nothing_and_what_the_system_refuses_are_named(tmp_path):
    (tmp_path / "link").symlink_to(tmp_path / "nowhere")
    (tmp_path / "file").touch()
    said = []
    for name in ("link", "link/deeper", "file/deeper"):
        with pytest.raises(OSError) as error:
            (tmp_path / name).mkdir(parents=True, exist_ok=True)
        said.append(command._in_words(error.value))
    link = (
        f"{tmp_path}/link: found a link to {tmp_path}/nowhere, where nothing is, expected a new path or what is there"
    )
    assert said[:2] == [link, link]
    assert re.match(rf"{tmp_path}/file\S*: found that the system refuses it \(.+\), expected a path that can", said[2])
    full = OSError(errno.ENOSPC, "No space left on device", str(tmp_path / "file"))
    assert command._in_words(full) == f"{tmp_path}/file: found that the system refuses it (No space left on device)"


def test_an_interrupt_is_one_line_with_the_status_of_a_shell(tmp_path):
    done = run(tmp_path, body="raise KeyboardInterrupt")
    assert (done.returncode, done.stderr) == (130, "error: interrupted\n")


def test_a_bucket_without_its_library_names_the_extra(tmp_path):
    body = "raise ImportError('Please install gcsfs to access Google Storage')"
    line = the_line(run(tmp_path, "--workdir=gs://bucket/run", body=body))
    assert line == (
        "error: --workdir=gs://bucket/run: found no library gcsfs, expected it for paths in a bucket: "
        "pip install 'prism_jax[gcs]'"
    )
