"""Small files of kinds that people have reported of other tools, each run by the command in its README."""

import json
import os
import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import tiny_export

ROOT = Path(__file__).resolve().parents[2]
FOLDER = ROOT / ".." / "shared" / "cases"
ANSWERS = "240 answers of 12 people, 47.5% accepted"
"""What the logs of answers hold."""


def certainties(folder, code, said):
    fit = json.loads((folder / "out" / "calibration.json").read_text())["accept_fast"]
    return code == 0 and 0.8 < fit["scale"] < 1.25 and fit["certain"] == 115 and "exactly 0 or 1" in said


def refused(words):
    return lambda folder, code, said: code == 1 and re.search(rf"^error: .*{words}", said, re.MULTILINE)


def read(words=""):
    return lambda folder, code, said: code == 0 and words in said


RIGHT = {
    "A01": certainties,
    "A02": refused(r"propensity: found mean\(A/e\) of all rows to be 1\.5 .*expected 1"),
    "A03": refused("row 2, column 'e': found 1 where no offer was made, expected the probability of an offer"),
    "A04": read(ANSWERS),
    "A05": read(ANSWERS),
    "A06": refused("row 0, column 'user': found nothing"),
    "A07": read(ANSWERS),
    "A08": refused(r"milliseconds.jsonl:1: time: found 1\.79e\+12, expected a number of seconds"),
    "A09": read(ANSWERS),
    "A10": read(),
    "A11": read("report: out/report.html"),
}


@pytest.mark.slow
@pytest.mark.skipif(not FOLDER.is_dir(), reason="needs ../shared/cases, a folder of such files")
@pytest.mark.parametrize("name", RIGHT)
def test_each_is_read_right_or_clearly_refused(name, tmp_path, template, model, draw_params):
    (source,) = FOLDER.glob(f"{name}-*")
    folder = tmp_path / "files"
    shutil.copytree(source, folder)
    command = re.search(r"^command: python (.*)", (folder / "README").read_text(), re.MULTILINE)[1]
    if "EXPORT" in command:
        command = command.partition(" (")[0].replace(
            "EXPORT", str(tiny_export.export(tmp_path, template, model, draw_params(model)))
        )
    done = subprocess.run(
        [sys.executable, *shlex.split(command)],
        cwd=folder,
        env=os.environ | {"PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert RIGHT[name](folder, done.returncode, " ".join(done.stdout.split()) + "\n" + done.stderr), done
