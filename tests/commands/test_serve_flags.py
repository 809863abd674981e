"""Flags of `serve` that do not go together, and what its first line says."""

import socket

import forked
import pytest

from prism_jax.commands import serve
from prism_jax.decision.calibration import Platt
from prism_jax.decision.operating_point import OperatingPoint
from prism_jax.gate import Gate

pytest.importorskip("uvicorn", reason="the server is that of the extra `serve`")


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({}, "callers' probabilities are taken for calibrated"),
        ({"gate": "plain"}, "callers' probabilities are taken for calibrated"),
        ({"gate": "fitted"}, "calibrated by fitted"),
        ({"decisions": "http://h/v1", "decision_model": "m"}, "not calibrated: `python -m prism_jax calibrate` writes"),
        ({"decisions": "http://h/v1", "decision_model": "m", "gate": "plain"}, "not calibrated: `python"),
        ({"decisions": "http://h/v1", "decision_model": "m", "questions": "slots"}, "with the maps of the server"),
        ({"decisions": "http://h/v1", "decision_model": "m", "questions": "slots", "gate": "fitted"}, "calibrated by"),
    ],
)
def test_the_first_line_says_what_calibrates(options, said, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Gate.at_costs(c_fa=1.0, c_fn=2.0).save("plain")
    Gate(OperatingPoint(), accept=Platt(1.3, 0.2, 3.0)).save("fitted")
    names = ("state", "owners", "model", "name", "gate", "decisions", "decision_model", "questions")
    line = serve._about({**dict.fromkeys(names), "state": "s", **options})
    assert line.partition("; ")[2].startswith(said)
    assert line.startswith("decide, " if "decisions" not in options else "decisions and systemone, events, decide, ")


def test_a_server_on_a_store_that_another_one_has_says_so_before_it_listens(tmp_path):
    from prism_jax.agent.state.store import StateStore

    (tmp_path / "s" / "tenants").mkdir(parents=True)
    with StateStore(tmp_path / "s" / "tenants" / "north") as north:
        north.partition(0)
    with StateStore(tmp_path / "s" / "tenants" / "default"), socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        done = forked.run("prism_jax", "serve", "--state=s", "--c_fa=1", "--c_fn=2", f"--port={port}", cwd=tmp_path)
    assert done.returncode == 1 and "found it in use by another process" in done.stderr.splitlines()[-1]
    assert "--token_file: no token of north: nobody can ask what s has of them" in done.stderr


def test_a_file_in_the_place_of_the_state_is_named(tmp_path):
    (tmp_path / "file").write_text("")
    done = forked.run("prism_jax", "serve", "--state=file", "--c_fa=1", "--c_fn=2", "--port=0", cwd=tmp_path)
    assert done.returncode == 1 and "file" in done.stderr.splitlines()[-1]
