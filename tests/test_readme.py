"""The README's Python examples run as printed, and its figure is the one that its command draws."""

import pathlib
import re
import runpy
import xml.etree.ElementTree as ElementTree

import forked
import numpy as np
import pytest

ROOT = pathlib.Path(__file__).parents[1]
README = (ROOT / "README.md").read_text(encoding="utf-8")
EXAMPLES = re.findall(r"^```python\n(.*?)^```", README, re.MULTILINE | re.DOTALL)
FIGURE = ROOT / "docs" / "figures" / "costs_by_ratio.svg"


def test_the_gates_example_decides_and_learns(capsys):
    (example,) = (text for text in EXAMPLES if "Gate.fit" in text)
    names = {}
    exec(compile(example, "README.md", "exec"), names)
    before, after = names["verdict"], names["ada"](p_need=0.9, p_accept=0.5)
    assert before and after.p_accept < before.p_accept
    assert re.fullmatch(r"offer: 0\.\d\d >= 0\.\d\d\n", capsys.readouterr().out)


def test_it_is_short_and_names_what_is_there():
    assert len(README.splitlines()) <= 120
    for target in re.findall(r"\]\(((?!http)[^)#]+)", README):
        assert (ROOT / target).exists(), target


@pytest.fixture
def script():
    return runpy.run_path(str(ROOT / "docs" / "figures" / "costs_by_ratio.py"))


def test_the_figure_shows_the_policies_of_the_script(script):
    """The labels and the order of the committed figure; tests/slow/test_quickstart.py draws it from a run."""
    texts = [element.text for element in ElementTree.parse(FIGURE).iter() if element.tag.endswith("}text")]
    labels = [label for label, *_ in script["STYLES"].values()]
    assert [text for text in texts if text in labels] == labels
    assert FIGURE.stat().st_size < 40_000


def test_drawing_twice_gives_the_same_bytes(script, tmp_path):
    costs = {policy: list(np.linspace(0.1, 0.3, len(script["RATIOS"]))) for policy in script["STYLES"]}
    script["draw"](costs, tmp_path / "a.svg")
    script["draw"](costs, tmp_path / "b.svg")
    assert (tmp_path / "a.svg").read_bytes() == (tmp_path / "b.svg").read_bytes()


@pytest.mark.parametrize("name", [pytest.param("calibrate", marks=pytest.mark.slow), "serve"])
def test_the_first_doors_commands_ask_an_engine_and_answer_openais_client(
    name, template, tmp_path, monkeypatch, capsys
):
    """As printed, but for the engine, which is a fake one, and the ports, which are free ones."""
    pytest.importorskip("openai", reason="the client of the extra `remote`")
    from engines import CONTEXT, Fake, export
    from served import Served

    if name == "calibrate":
        (line,) = re.findall(r"^python -m prism_jax calibrate (.*)$", README, re.M)
        (flag,) = re.findall(r"`(--engine=llamacpp:http://127.0.0.1:8080)` in both commands", README)
        engine = Fake("llamacpp", template.tokenizer)
        export(tmp_path / "exported", template)
        (tmp_path / "docs").symlink_to(ROOT / "docs")
        options = [*line.split(), flag.replace("8080", str(engine.port)), f"--context={CONTEXT}"]
        done = forked.run("prism_jax", "calibrate", *options, cwd=tmp_path)
        assert done.returncode == 0 and (tmp_path / "gate.json").is_file(), done.stderr
        engine.close()
        return
    (example,) = (text for text in EXAMPLES if "decisions.create" in text)
    with Served(name="exported") as served:
        exec(compile(example.replace("127.0.0.1:8000", f"127.0.0.1:{served.port}"), "README.md", "exec"), {})
    printed = capsys.readouterr().out
    assert re.fullmatch(r"\[.*'need', probability=0\.\d+.*'accept:Fix the test\?', probability=0\.\d+.*\]\n", printed)
