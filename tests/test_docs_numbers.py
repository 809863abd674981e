"""Numbers of the pages: what stands beside a cheap command is what it prints, and constants are those of the labels.

A command is cheap if it only reads what is there, the run of the quickstart, the tables of this repository or the
public data beside it, or if the list of experiments says that it takes a minute at most. The others are skipped, each
with its reason (`pytest -rs`). The text from a command to the next one or to the end of its section, or the row of a
table that ends in it, is compared with what it prints and with the tables that it writes.

Compared are intervals with their values, decimals, percentages and whole numbers of three digits, and in tables and
printed blocks all numbers, to the digits that the page has. Not compared are years, times, sizes and prices, `code`,
and what is in `COMPUTED`. The student of the quickstart is that of one processor: on others its row, which ▸ marks, may
differ by 0.01 of cost or 2 percentage points, and what reads it is skipped where it prints other numbers.
"""

import ast
import csv
import os
import pathlib
import re
import shlex
import subprocess
import sys
from typing import NamedTuple

import numpy as np
import pytest
from pyarrow import parquet

from prism_jax.evaluation.answers.columns import EXAMPLES
from prism_jax.experiments import people_demo
from prism_jax.experiments.paper import registry
from prism_jax.streams import proactivebench
from prism_jax.streams.simulator import SimulatorConfig
from prism_jax.streams.sources import DataConfig, load_splits
from studies.coverage.command import PARTS
from studies.registry import STUDIES as OUTSIDE

ROOT = pathlib.Path(__file__).parents[1]
SHARED = ROOT.parent / "shared"
STUDIES = registry.STUDIES | OUTSIDE
TAKES = {"main": "seconds"} | {name: study.takes for name, study in STUDIES.items()}
TAKES |= {f"--of={name}": part.takes for name, part in PARTS.items()}
LOGS, BENCH = SHARED / "acceptance-logs", SHARED / "proactivebench"
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md")), *sorted((ROOT / "configs").glob("*.py"))]
COMMAND = re.compile(
    r"(?<!\| `)(?:python -m (?:prism_jax[ .]|studies[ .])(?:\\\n|[^\n`])*|(?<=\n)`?make (?:quickstart|people-demo)\b)"
)
QUICKSTART = ("--config=configs/quickstart.py", "--workdir=runs/quickstart")
READING = ("evaluate", "promise", "counterfactual", "studies.audit_tables", "probe")
"""Commands that train nothing and ask nobody."""
INPUTS = r"--(?:scores|log|source|config|calibration|records|streams|weights|system)=|\S*\.csv$"
THERE = r"--\w+=(?:\$LOGS/|DIR$|PROACTIVEBENCH$|runs/(?:quickstart|people_demo)/|\w+/probe_)|docs/paper_tables/"
MACHINE = re.compile(r"\s*(?:to [\d.]+ )?(?:s|ms|μs|seconds?|minutes?|hours?|times|[GMTk]i?B|bytes|USD|tokens)\b")
NUMBER = r"[+−-]?(?:\d[\d,]*\d|\d)(?:\.\d+)?|[+−-]?\.\d+"
TRIPLE = re.compile(rf"({NUMBER})\s+\[({NUMBER}),\s+({NUMBER})\]")  # a note may end its lines anywhere
SINGLE = re.compile(rf"(?<![\w.,^/:–])(?:{NUMBER})(?![\w^/]|\.\d)")
TABLE = re.compile(r"\||.*[─▸]|    ? ?\S.*\d  ")
COMPUTED = {
    "promises.md": "0.06",  # 2.3/41
    "personal_agent.md": "400",  # a setting
    "probe_simulator.py": "80",  # a bound
    "README.md": "3.11",  # a version
    "quickstart.py": "0.06 80",  # bounds that tests/slow/test_quickstart.py checks
    "judges.md": "223 89.1 229 0.71 3.5",  # labels without ties; the paper's numbers; a model's name
    "acceptance_logs.md": "57 36.4 15 769",
    "distillation.md": "0.198 0.060",  # 0.294 - 0.096, 0.241 - 0.181
    "scores.md": "4,000",  # a setting
    "maths.md": "1,000 0.247 88.7 94.9",  # settings, an example, and a test
    # settings of tables in files; arithmetic on the paper's numbers
    "paper.md": "0.5 400 500 506 994 "
    "20.14 66.47 231 77.25 87.17 172.43 175.17 174.88 126.23 72.96 11.15 89.1 89.08 91.2 91.27",
}
"""Numbers by page that follow from printed ones, or that define what is done."""


class Beside(NamedTuple):
    """Commands that follow each other, and what stands beside them."""

    page: str
    commands: tuple[str, ...]
    text: str

    @property
    def reasons(self):
        """Why it is skipped; nothing if it is run."""
        return list(filter(None, map(reason_to_skip, self.commands)))


def reason_to_skip(command):
    """Why a command is not run; empty for one that is."""
    words = shlex.split(command.strip("`").replace("\\\n", " "), comments=True)
    if words[0] == "make" or words[2:] == ["prism_jax", "train", *QUICKSTART]:
        return ""
    name, *rest = words[2:] if words[2].startswith("studies") else words[3:]
    if name in ("experiments", "studies"):
        name, *rest = rest
        takes = TAKES.get(next((word for word in rest if word.startswith("--of=")), name), "minutes")
        if takes not in ("seconds", "a minute"):
            return f"{name} takes {takes}"
    elif name not in READING:
        return f"{name} trains, asks or serves"
    inputs = [word for word in rest if re.match(INPUTS, word)]
    missing = [word for word in inputs if not re.match(THERE, word)]
    alone = name in STUDIES or inputs
    return f"{name} reads {missing[0]}" if missing else "" if alone and "$W" not in command else f"{name} reads more"


def quoted_beside():
    """The commands of all pages with the text that quotes what they print."""
    for page in PAGES:
        text = page.read_text(encoding="utf-8")
        text = text if page.suffix == ".md" else "# \n" + (ast.get_docstring(ast.parse(text)) or "")
        for name, words in re.findall(r'^([A-Z]+)="(python -m .*)"$', text, re.MULTILINE):
            text = text.replace(f'{name}="{words}"', "").replace(f"${name} ", f"{words} ")
        for quoted, command in re.findall(
            r"^(\|.*)\| `((?:python -m prism_jax|python -m studies|make quick).*)` \|$", text, re.MULTILINE
        ):
            yield Beside(page.name, (command,), quoted)
        for section in re.split(r"^#+ ", text, flags=re.MULTILINE)[1:]:
            blocks: list[list[re.Match]] = []
            for match in COMMAND.finditer(section):
                between = section[blocks[-1][-1].end() : match.start()] if blocks else "\n\n"
                blocks[-1].append(match) if between.count("\n") == 1 else blocks.append([match])
            if not blocks:
                continue
            ends = [*(block[0].start() for block in blocks[1:]), len(section)]
            for number, (block, end) in enumerate(zip(blocks, ends, strict=True)):
                before = section[: block[0].start()] if number == 0 else ""
                commands = tuple(match.group() for match in block)
                yield Beside(page.name, commands, before + "\n" + section[block[-1].end() : end])


def quoted_numbers(text):
    """The numbers to compare, each with its line: a value with the ends of its interval, or a number alone."""
    text = re.sub(r"```(?:python|sh|json|toml)\n.*?```", "", text, flags=re.DOTALL)
    text = re.sub(r"\]\([^)]*\)|https?://\S+", "]", re.sub(r"`[^`\n]*`", "", text))
    for line in text.splitlines():
        yield from ((match.groups(), line) for match in TRIPLE.finditer(line))
        rest = TRIPLE.sub(" ", line)
        for match in SINGLE.finditer(rest):
            number, after = match.group(), rest[match.end() :]
            counts = re.fullmatch(r"(?!19|20)\d{3}|\d{1,3},\d{3}", number) or TABLE.match(line)
            if not MACHINE.match(after) and ("." in number or re.match(r" ?%", after) or counts):
                yield (number,), line


def value(number):
    return float(number.replace(",", "").replace("−", "-"))


def is_printed(numbers, printed):
    """Whether an output has a number, or a value with its interval, with either sign, as it is or in percent."""
    digits = [len(number.partition(".")[2]) for number in numbers]
    found = TRIPLE.findall(printed) if len(numbers) == 3 else [(one,) for one in re.findall(NUMBER, printed)]
    among = np.array([[*map(value, one)] for one in found]).reshape(-1, len(numbers))
    wanted = np.array([*map(value, numbers)])
    room = [0.5000001 * 10.0**-digit for digit in digits]
    other = -wanted[[0, 2, 1][: len(numbers)]]  # what one minus the other is, the other is less
    return any((np.abs(scale * among - to) <= room).all(axis=1).any() for scale in (1, 100) for to in (wanted, other))


def is_near(numbers, line, printed):
    """Whether a number of a trained student's row, which differs by processor, is about that of the printed row."""
    name = re.match(r" ▸ (\w+) ", line)
    row = name and re.search(rf"^ ▸ {name[1]} .*", printed, re.MULTILINE)
    if not row:
        return False
    own = SINGLE.findall(row[0])[SINGLE.findall(line).index(numbers[0])]
    return abs(value(own) - value(numbers[0])) <= (0.01 if len(own.partition(".")[2]) == 4 else 2)  # costs; percent


CHEAP = [beside for beside in quoted_beside() if any(True for _ in quoted_numbers(beside.text))]
CASES = [
    pytest.param(
        of,
        id=f"{of.page}: {' '.join(of.commands[0].split())[:90]}",
        marks=[pytest.mark.skip(reason=why[0])] if why else [],
    )
    for of in CHEAP
    for why in [of.reasons]
]


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A working folder beside the public data."""
    made = tmp_path_factory.mktemp("pages") / "work"
    made.mkdir()
    if SHARED.is_dir():
        (made.parent / "shared").symlink_to(SHARED)
    for name in ("docs", "configs", "notebooks"):
        (made / name).symlink_to(ROOT / name)
    return made


def run(command, folder):
    """What a command prints, and the tables that it writes; the quickstart is run once, where a command needs it."""
    command = command.strip("`")
    if command == "make people-demo":
        return run("python -m prism_jax experiments people_demo --workdir=runs/people_demo", folder)
    kept, train = folder / "quickstart.txt", " ".join(("python -m prism_jax train", *QUICKSTART))
    if "quickstart" in command and not kept.exists():
        kept.touch()
        kept.write_text(run(train, folder))
    if command in ("make quickstart", train) and kept.stat().st_size:
        return kept.read_text()
    line = re.sub(r"--source=(?:DIR|PROACTIVEBENCH)\b", f"--source={BENCH}", command)
    places = {"LOGS": str(LOGS), "PYTHONPATH": str(ROOT), "COLUMNS": "200"}
    words = ["bash", "-c", line.replace("python", sys.executable, 1)]
    done = subprocess.run(words, cwd=folder, env=os.environ | places, capture_output=True, text=True, check=False)
    found = 1 if re.search(r"studies\.audit_tables\b", command) else 0  # an audit ends with 1 where it finds something
    assert done.returncode in (0, found), f"{command} ended with {done.returncode}: {done.stderr}"
    made = re.search(r"--workdir=(\S+)", command)
    tables = sorted((folder / made.group(1)).glob("*.csv")) if made and "quickstart" not in made.group(1) else []
    return "\n".join([done.stdout, *(table.read_text() for table in tables)])


@pytest.mark.study
def test_a_command_that_fails_is_no_reading_even_with_the_status_of_an_audits_findings(folder):
    with pytest.raises(AssertionError, match=r"promise ended with 1: error: \S"):
        run("python -m prism_jax promise", folder)
    assert "findings" in run("python -m studies.audit_tables docs/paper_tables/main.csv --n=233 --n=227", folder)


def section_of(page, start):
    """The text from a mark to the next heading."""
    text = (ROOT / page).read_text(encoding="utf-8")
    assert text.count(start) == 1, (page, start)
    return re.split(r"^#+ ", text.partition(start)[2], maxsplit=1, flags=re.MULTILINE)[0]


def test_commands_and_the_numbers_beside_them_are_found():
    found = {of.page: of for of in CHEAP if not of.reasons}
    assert {"README.md", "acceptance_logs.md", "promises.md", "probe_proactivebench.py"} <= set(found)
    assert len(CHEAP) - len(found) > 10 and all(len(reason) > 10 for of in CHEAP for reason in of.reasons)
    printed = "gate 0.4761 [0.41, 0.55]  12 % 3,005 −0.02"
    for text, right in {
        "costs 0.476 [0.41, 0.55]": True,
        "costs 0.476 [0.41, 0.56]": False,
        "costs 0.477": False,
        "12.0 % of 3,005 and 0.02 less": True,
        "13 %": False,
        "| 3,006 |": False,
        "it takes 5.5 seconds and 3.1 GiB, `0.99`": True,
    }.items():
        assert all(is_printed(numbers, printed) for numbers, _ in quoted_numbers(text)) == right, text
    for own, right in {"0.1716  42.7": True, "0.1718  40.8": False, "0.1617  42.9": False}.items():
        row = " ▸ dynamic        0.1617  40.8"
        near = [is_near(one, row, f" ▸ static  0.16  4\n ▸ dynamic  {own}\n") for one in (["0.1617"], ["40.8"])]
        assert all(near) == right, own


def test_the_trained_row_of_the_readme_follows_from_its_costs():
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    rows = {name: [*map(float, cells.split())] for name, cells in re.findall(r"^ [ ▸] (\w+) +([\d. ]+)$", text, re.M)}
    (realised, _, expected, regret, *gaps, _, _), always, bayes = (
        rows[name] for name in ("dynamic", "always", "Bayes")
    )
    assert regret == pytest.approx(expected - bayes[2], abs=1.01e-4)
    for gap, cost, place in zip(gaps, (expected, realised), (2, 0), strict=True):
        assert gap == pytest.approx(100 * (always[place] - cost) / (always[place] - bayes[place]), abs=0.1)


def test_tables_in_files_are_named_once_and_hold_what_is_quoted_beside_their_names():
    named = re.compile(r"^- \[\w+\.csv\]\((\w+/\w+\.csv)\)(.*\n(?:  .*\n)*)", re.MULTILINE)
    pages = sorted((ROOT / "docs").glob("*.md"))
    beside = [(page.name, *match) for page in pages for match in named.findall(page.read_text(encoding="utf-8"))]
    files = [file for name in ("simulator_tables", "study_tables") for file in (ROOT / "docs" / name).glob("*.csv")]
    assert sorted(ROOT / "docs" / path for _, path, _ in beside) == sorted(files)
    for page, path, words in beside:
        with (ROOT / "docs" / path).open(encoding="utf-8", newline="") as file:
            rows = list(csv.reader(file))
        assert {len(row) for row in rows} == {len(rows[0])} and len(set(rows[0])) == len(rows[0]), path
        table = "\n".join(" | ".join(row) for row in rows)
        wrong = [numbers for numbers, _ in quoted_numbers(words) if not is_printed(numbers, table)]
        assert [numbers for numbers in wrong if numbers[0] not in COMPUTED.get(page, "").split()] == [], path


@pytest.mark.parametrize("name", ["copilot", "coauthor", "distraction"])
def test_the_costs_of_constants_on_logs_are_those_of_their_answers(name):
    if not (path := LOGS / f"{name}.parquet").is_file():
        pytest.skip(f"{path} is not there")
    column = "distraction" if name == "distraction" else "accepted"
    answers = parquet.read_table(path, columns=[column])[column].to_numpy()
    accepted = np.mean(answers < 4 if name == "distraction" else answers)
    quoted = section_of("docs/acceptance_logs.md", f"$LOGS/{name}.parquet \\\n")
    for policy, cost in {"always": 1 - accepted, "never": 2 * accepted}.items():
        # The first cell with an interval.
        (number,) = re.findall(rf"^\| {policy} \|[^\[]* ([\d.]+) \[", quoted, re.MULTILINE)
        assert float(number) == pytest.approx(cost, abs=5e-4)


def test_an_interruption_counts_as_accepted_alike_everywhere():
    columns = people_demo.LOGS["distraction"][0] + "".join(page.read_text(encoding="utf-8") for page in PAGES)
    assert set(re.findall(r"accepted=(distraction[<>=]+\d)", columns)) == {EXAMPLES["distraction"].accepted}


def test_the_cost_of_silence_on_human_judgements_is_that_of_the_labels():
    """C_FN where help was needed and some offer of the step would have been accepted, at each ratio of the pages."""
    if not BENCH.is_dir():
        pytest.skip(f"{BENCH} is not there")

    def never(streams):
        steps = [step for stream in streams for step in stream.steps if step.y_need is not None and step.candidates]
        return np.mean([step.y_need * max(offer.y_accept or 0 for offer in step.candidates) for step in steps])

    data = DataConfig(name="proactivebench", source=str(BENCH), folds=4, fold=0)
    every, fold = never(proactivebench.load(BENCH)), never(load_splits(data, SimulatorConfig()).test)
    names = "docs/field.md", "configs/probe_proactivebench.py"
    page, config = ((ROOT / name).read_text(encoding="utf-8") for name in names)
    (row,) = re.findall(r"^\| never offering \| (.*) \|$", page, re.MULTILINE)
    quoted = [float(cell.split()[0]) for cell in row.split(" | ")]
    assert quoted == pytest.approx([ratio * every for ratio in (4, 2, 1, 0.5)], abs=5e-4)
    assert f"{2 * fold:.3f}" in re.findall(r"never\s+offering\s+(?:costs\s+)?(\d\.\d+)", config)


@pytest.mark.study
@pytest.mark.parametrize("beside", CASES)
def test_a_page_quotes_what_its_command_prints(beside, folder):
    if not SHARED.is_dir() and re.search(r"LOGS|DIR|PROACTIVE|bench|decision_models", " ".join(beside.commands)):
        pytest.skip(f"{SHARED} is not there")
    printed = "\n".join(run(command, folder) for command in beside.commands)
    computed = COMPUTED.get(beside.page, "").split()
    wrong = [
        (numbers, line.strip())
        for numbers, line in quoted_numbers(beside.text)
        if not (is_printed(numbers, printed) or is_near(numbers, line, printed))
    ]
    wrong = [one for one in wrong if one[0][0] not in computed]
    row = re.search(r"^ ▸ .*", (ROOT / "README.md").read_text(encoding="utf-8"), re.MULTILINE)[0]
    reads_run = any("=runs/quickstart" in command and QUICKSTART[0] not in command for command in beside.commands)
    if wrong and reads_run and row not in (folder / "quickstart.txt").read_text():
        pytest.skip("it reads the quickstart's student, and that of this processor is another one than the pages'")
    assert wrong == []
