import pytest
from etils import epath

from prism_jax.training.logs import profiling
from prism_jax.training.logs.profiling import STEPS, Profile


@pytest.fixture
def calls(monkeypatch):
    seen = []
    monkeypatch.setattr(profiling.jax.profiler, "start_trace", lambda folder: seen.append(folder))
    monkeypatch.setattr(profiling.jax.profiler, "stop_trace", lambda: seen.append("stop"))
    return seen


@pytest.mark.parametrize(("first", "last", "end"), [(3, 9, 2 + STEPS), (8, 9, 9), (9, 9, 9)])
def test_a_trace_holds_a_few_steps_and_ends_with_the_run(calls, tmp_path, first, last, end):
    trace, during = Profile(epath.Path(tmp_path) / "profile", first, 2, last), []
    for step in range(3, last + 1):
        trace.before(step)
        if len(calls) == 1:
            during.append(step)
        trace.after(step, None)
    trace.close()
    assert calls == [str(tmp_path / "profile"), "stop"]
    assert during == list(range(first, end + 1))


def test_an_interrupted_run_ends_its_trace(calls, tmp_path):
    trace = Profile(epath.Path(tmp_path) / "profile", 1, 0, 9)
    trace.before(1)
    trace.close()
    trace.close()
    assert calls[1:] == ["stop"]


@pytest.mark.parametrize("first", [0, 4, 10])
def test_a_step_outside_the_run_is_rejected(tmp_path, first):
    with pytest.raises(ValueError, match=rf"^profile: found step {first}, expected one from 5 to 9$"):
        Profile(epath.Path(tmp_path) / "profile", first, 4, 9)
