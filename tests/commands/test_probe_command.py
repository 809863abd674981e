import dataclasses

import pytest

from prism_jax.commands.probing import train_and_evaluate_probe
from prism_jax.probe.probe_config import ProbeConfig
from prism_jax.runtime.dataclass_config import ConfigError
from prism_jax.streams.jsonl import write_streams
from prism_jax.streams.simulator import SimulatorConfig, simulate
from prism_jax.training.students import sources


def test_the_report_names_the_files_and_a_probe_of_other_streams_is_not_evaluated(tmp_path):
    settings = SimulatorConfig(min_events=4, max_events=5)
    paths = [str(tmp_path / f"{name}.jsonl") for name in ("train", "calibration", "test")]
    for first, path in zip((0, 12, 24), paths, strict=True):
        write_streams(path, [simulate(settings, index, "always") for index in range(first, first + 12)])
    config, run = ProbeConfig(data=sources(*paths)), tmp_path / "run"
    train_and_evaluate_probe(config, run)
    assert f"jsonl ({', '.join(paths)})" in (run / "report.html").read_text(encoding="utf-8")
    train_and_evaluate_probe(config, run)
    write_streams(
        paths[0], [dataclasses.replace(simulate(settings, index, "always"), id=f"{index}") for index in (24,)]
    )
    with pytest.raises(ConfigError, match=rf"^{run}: found the training streams changed \("):
        train_and_evaluate_probe(config, run)
