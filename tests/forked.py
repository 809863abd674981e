"""Runs commands as a user does, each in a fork of a process that has imported the libraries already.

Importing JAX, Flax, Orbax and the others takes several seconds, and many tests start a command only to read one line of
its output. Everything after the imports is as in a process of its own: arguments, environment, working folder, standard
streams, exit status. A test of what a command imports needs `subprocess.run` instead. No import starts a thread but
those of OpenBLAS and jemalloc, which both start theirs again after a fork.
"""

from __future__ import annotations

import atexit
import functools
import json
import os
import pathlib
import subprocess
import sys
import tempfile
from collections.abc import Mapping

PARENT = """
import atexit, contextlib, gc, json, os, runpy, sys
status = 0

def leave():
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(status)

atexit.register(leave)  # runs last, because it is the first; to free all modules would take a second
sys.path[0] = ""
import prism_jax.runs.pipeline, prism_jax.runs.export, prism_jax.agent.serving, prism_jax.runs.scores_files
import prism_jax.runs.answers, prism_jax.runs.counterfactual, prism_jax.report.tables
import prism_jax.agent.agent
import ml_collections, pandas, rich.progress, scipy.ndimage, scipy.optimize, scipy.stats  # the mains load them later
sys.modules["torch"] = None  # only the tests need it, and TensorBoardX loads it where it can
import tensorboardX.event_file_writer
del sys.modules["torch"]
with contextlib.suppress(ImportError):  # extras, which the commands that need them load
    import openai.resources.chat, prism_jax.remote.transport
with contextlib.suppress(ImportError):
    import prism_jax.agent.service.app, prism_jax.agent.service.state_app, uvicorn
gc.freeze()  # so that no collection of a child walks through, and copies, what is here
for line in sys.stdin:
    request = json.loads(line)
    child = os.fork()
    if child == 0:
        for number, name in enumerate((os.devnull, request["out"], request["err"])):
            file = os.open(name, os.O_RDWR | os.O_TRUNC)
            os.dup2(file, number)
            os.close(file)
        break
    print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), flush=True)
else:
    sys.exit()
os.chdir(request["cwd"])
os.environ |= request["late"]
sys.path[1:1] = filter(None, [request["late"].get("PYTHONPATH")])
program, sys.argv = request["program"], [request["program"], *request["arguments"]]
try:
    if program.endswith(".py"):
        sys.path[0] = os.path.dirname(program)
        runpy.run_path(program, run_name="__main__")
    else:
        runpy.run_module(program, run_name="__main__", alter_sys=True)
except SystemExit as error:
    status = error.code if isinstance(error.code, int) else int(error.code is not None)
    raise
except BaseException:
    status = 1
    raise
"""


ROOT = pathlib.Path(__file__).parents[1]
QUICK = {"JAX_PLATFORMS": "cpu", "JAX_DISABLE_MOST_OPTIMIZATIONS": "true"}


def run(
    program: str | pathlib.Path,
    *arguments: object,
    cwd: pathlib.Path = ROOT,
    env: Mapping[str, str] = QUICK,
    late: Mapping[str, str] = {},
) -> subprocess.CompletedProcess[str]:
    """Runs a module, as `python -m` does, or a file, without standard input.

    Args:
      program: Name of the module, or path of the file.
      arguments: Its arguments.
      cwd: Working folder.
      env: Variables to set beside those of this process; every other environment costs the imports again.
      late: Variables that are set after the imports, and cost nothing.

    Returns:
      Its exit status, standard output and standard error.
    """
    with tempfile.TemporaryDirectory() as folder:
        out, err = pathlib.Path(folder) / "out", pathlib.Path(folder) / "err"
        out.touch()
        err.touch()
        request = {"program": str(program), "arguments": list(map(str, arguments)), "cwd": str(cwd), "late": dict(late)}
        parent = _parent(tuple(sorted(env.items())))
        assert parent.stdin is not None and parent.stdout is not None, "both are pipes"
        parent.stdin.write(json.dumps(request | {"out": str(out), "err": str(err)}) + "\n")
        parent.stdin.flush()
        status = int(parent.stdout.readline())
        return subprocess.CompletedProcess(
            [str(program), *request["arguments"]], status, out.read_text(), err.read_text()
        )


@functools.cache
def _parent(env: tuple[tuple[str, str], ...]) -> subprocess.Popen[str]:
    """The process to fork, one per environment, because libraries read variables when they are imported."""
    parent = subprocess.Popen(
        [sys.executable, "-c", PARENT],
        cwd=ROOT,
        env={**os.environ, **dict(env)},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )

    @atexit.register
    def end() -> None:
        parent.communicate()

    return parent
