"""Every file in configs/ loads, states its command, time and result, and can train one step."""

import dataclasses
import pathlib
import runpy

import pytest

from prism_jax.labelling.judges.judging import JudgesConfig
from prism_jax.labelling.teacher.labelling import TeacherConfig
from prism_jax.probe.probe_config import ProbeConfig
from prism_jax.runs.pipeline import train_and_evaluate
from prism_jax.runtime.dataclass_config import from_config_dict, to_config_dict
from prism_jax.training.run_config import RunConfig
from prism_jax.training.workdir import Workdir

pytestmark = pytest.mark.usefixtures("compile_quickly")

ROOT = pathlib.Path(__file__).parents[1]
FILES = sorted((ROOT / "configs").glob("*.py"))
KINDS = {
    **dict.fromkeys(("teacher", "simulated_teacher", "baselines"), TeacherConfig),
    **dict.fromkeys(("judges", "simulated_judges"), JudgesConfig),
    **dict.fromkeys(("probe_simulator", "probe_proactivebench"), ProbeConfig),
}
"""The configs of other mains than `train`."""
RECIPES = {"qwen3_8b_a100", "qwen3_8b_a100x8", "qwen3_0_6b", "qwen3_lora"}
"""These read a teacher's labels; tests/test_recipe_configs.py takes a step of each."""
DEMO = {"distilled"}
"""This reads what the demo writes; tests/slow/test_distill_demo_end_to_end.py trains it."""
VOTES = {"proactivebench_tiny"}
"""tests/slow/test_proactivebench_run.py trains this."""


def read(path):
    return runpy.run_path(str(path))["get_config"]()


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_it_round_trips_and_states_how_to_run_it(path):
    names = runpy.run_path(str(path))
    config = from_config_dict(KINDS.get(path.stem, RunConfig), names["get_config"]())
    assert to_config_dict(config) == names["get_config"]()
    for words in (f"--config=configs/{path.name}", "Time:", "Result:"):
        assert words in names["__doc__"]


def test_the_independent_panel_shares_no_maker_with_teacher_labels_and_student():
    config = runpy.run_path(str(ROOT / "configs/judges.py"))
    panels = {name: config["get_config"](f"{name},http://127.0.0.1:1/v1") for name in config["PANELS"]}
    assert all(one.base_url.endswith(":1/v1") for panel in panels.values() for one in panel.endpoints.values())
    makers = {name: {one.model.split("/")[0] for one in panel.endpoints.values()} for name, panel in panels.items()}
    teacher = read(ROOT / "configs/teacher.py")
    shared = {*makers["paper"], teacher.endpoint.model.split("-")[0], "qwen"}
    assert len(makers["independent"]) == 3 and "deepseek" in shared
    assert not makers["independent"] & shared
    with pytest.raises(ValueError, match="panel: found 'paperr', expected one of paper, pool_a, pool_b, independent"):
        config["get_config"]("paperr")


def trained(path):
    """A config as a parameter: those that start from SmolLM2 take minutes, as other slow tests of its weights do."""
    return pytest.param(path, id=path.stem, marks=[pytest.mark.study] * path.stem.startswith("smollm2"))


@pytest.mark.slow
@pytest.mark.parametrize(
    "path", [trained(path) for path in FILES if path.stem not in {*RECIPES, *KINDS, *DEMO, *VOTES}]
)
def test_it_takes_one_step(path, tmp_path, monkeypatch, request):
    monkeypatch.chdir(ROOT)
    monkeypatch.setenv("TFDS_DATA_DIR", str(tmp_path / "tfds"))
    config = from_config_dict(RunConfig, read(path))
    if config.data.name == "proactivebench" and not (config.data.source and pathlib.Path(config.data.source).is_dir()):
        pytest.skip(f"no ProactiveBench data: data.source = {config.data.source!r} is missing")
    start = str(request.getfixturevalue("smollm2_gguf")) if config.training.start else ""
    settings = dict(steps=1, epochs=0.0, batch=2, checkpoint_every=1, start=start)
    if start and not config.training.frozen:  # where the patterns of frozen parameters name no block, a few are enough
        settings["start_blocks"] = 4
    small = dataclasses.replace(
        config,
        data=dataclasses.replace(config.data, train_streams=8, calibration_streams=8, test_streams=8),
        simulator=dataclasses.replace(config.simulator, min_events=4, max_events=4),
        training=dataclasses.replace(config.training, **settings),
    )
    train_and_evaluate(small, Workdir(tmp_path / "run"), report=False)
    assert len((tmp_path / "run" / "metrics.jsonl").read_text().splitlines()) == 1
    assert (tmp_path / "run" / "report.html").stat().st_size > 10_000
