"""The sdist and the wheel: complete, installable into an empty environment, and usable outside the checkout."""

import json
import os
import pathlib
import re
import shutil
import subprocess
import sys
import sysconfig
import tarfile
import zipfile

import pytest

pytestmark = pytest.mark.slow

ROOT = pathlib.Path(__file__).parents[2]
BUILD = "import sys; from setuptools import build_meta; print(getattr(build_meta, sys.argv[1])(sys.argv[2]))"


def build(kind, source, output):
    """Builds `sdist` or `wheel` from a source tree with the build backend alone; returns the path."""
    command = [sys.executable, "-c", BUILD, f"build_{kind}", str(output)]
    done = subprocess.run(command, cwd=source, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return output / done.stdout.splitlines()[-1]


def package_files(folder):
    """Every file of the package below a folder, without what Python writes itself."""
    files = (path for path in (folder / "prism_jax").rglob("*") if path.is_file() and path.suffix != ".pyc")
    return {path.relative_to(folder).as_posix() for path in files}


@pytest.fixture(scope="module")
def distributions(tmp_path_factory):
    """The sdist of a copy of the checkout, and the wheel of the unpacked sdist."""
    folder = tmp_path_factory.mktemp("distributions")
    copy = folder / "copy"
    shutil.copytree(ROOT / "prism_jax", copy / "prism_jax", ignore=shutil.ignore_patterns("__pycache__"))
    for name in ("setup.py", "pyproject.toml", "README.md", "LICENSE"):
        shutil.copy(ROOT / name, copy)
    sdist = build("sdist", copy, folder)
    with tarfile.open(sdist) as archive:
        archive.extractall(folder / "unpacked")  # our own, so without the filter, which early releases of 3.11 lack
    (unpacked,) = (folder / "unpacked").iterdir()
    return unpacked, build("wheel", unpacked, folder)


@pytest.fixture(scope="module")
def installed(distributions, tmp_path_factory):
    """A function that runs Python where the wheel is installed, in an empty folder outside the checkout."""
    _, wheel = distributions
    folder = tmp_path_factory.mktemp("elsewhere")
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(folder / "venv")], check=True)
    python = folder / "venv" / "bin" / "python"
    install = ["install", "--quiet", "--no-deps", "--no-index", str(wheel)]
    subprocess.run([sys.executable, "-m", "pip", f"--python={python}", *install], check=True)
    # Dependencies come from the environment of the tests; its own link to the checkout is a .pth file, which a folder
    # of PYTHONPATH does not activate.
    environment = os.environ | {"PYTHONPATH": sysconfig.get_path("purelib"), "JAX_PLATFORMS": "cpu"}
    return folder, lambda *arguments: subprocess.run(
        [str(python), *arguments], cwd=folder, env=environment, capture_output=True, text=True
    )


def test_sdist_and_wheel_hold_every_file_of_the_package(distributions):
    unpacked, wheel = distributions
    expected = package_files(ROOT)
    assert {"prism_jax/py.typed", "prism_jax/report/report.html.jinja"} <= expected
    assert package_files(unpacked) == expected
    with zipfile.ZipFile(wheel) as archive:
        names = {name for name in archive.namelist() if not name.endswith("/")}
    assert {name for name in names if name.startswith("prism_jax/")} == expected
    assert all(name.startswith(("prism_jax/", "prism_jax-")) for name in names)
    assert any(name.endswith("/LICENSE") for name in names)


def test_the_installed_package_is_the_wheels(installed):
    folder, python = installed
    done = python("-c", "import prism_jax; print(prism_jax.__file__, prism_jax.__version__)")
    place, version = done.stdout.split()
    assert pathlib.Path(place).is_relative_to(folder)
    assert f'version="{version}"' in (ROOT / "setup.py").read_text(encoding="utf-8")


def test_evaluate_writes_a_report_outside_the_checkout(installed):
    """Uses the templates, which are data of the package, on the example of the page about scores."""
    folder, python = installed
    page = (ROOT / "docs" / "scores.md").read_text(encoding="utf-8")
    (example,) = re.findall(r"^```json\n(.*?)^```", page, re.MULTILINE | re.DOTALL)
    (folder / "scores.jsonl").write_text(example)
    done = python("-m", "prism_jax", "evaluate", "--scores=scores.jsonl", "--workdir=out")
    assert done.returncode == 0, done.stderr
    assert "<svg" in (folder / "out" / "report.html").read_text()
    assert json.loads((folder / "out" / "evaluation.json").read_text())["counts"]["judged"] == 3
