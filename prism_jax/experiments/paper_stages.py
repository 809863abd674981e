"""The stages of the paper in order, and where each of its numbered tables and figures comes from.

What is judged is what would be said: the teacher's proposals at the training steps, and each student's own texts at the
calibration and test steps. Systems that only answer, prompted or published, are judged on what they did.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

from etils import epath

from prism_jax.experiments.real_costs import CALIBRATION_EVENTS, CONFIGS, EVENTS, TEST_EVENTS, Asks
from prism_jax.experiments.stages import Stage, main_of
from prism_jax.proactivebench.published import PAPER_SYSTEMS
from prism_jax.runs.curation import summary_path
from prism_jax.training.pathway_config import PATHWAYS, SECOND_STAGES

MAIN, PRINTED, HELD_OUT, BASE = "rdc_sft", "rdc_sft_paper", "without_writing", "base"
"""The student of the main table; the same on rows that Eq. 2 chose as printed; one that never saw `DOMAIN`; and the
model before training."""
DOMAIN = "writing"
PAPER_NAMES = {"sft": "SFT", "dft": "DFT", "weighted_sft": "Weighted-SFT", MAIN: "RDC-SFT (ours)"}
"""Rows of ablation C by pathway; our further pathways keep their own names."""
PRISM, BASELINE = "Qwen3-8B-PRISM", "DeepSeek-R1"
ANSWERING = {"deepseek_r1": BASELINE, "qwen3_8b": "Qwen3-8B"}
"""Baselines without published traces: their argument of configs/baselines.py, and their row."""
DONE = {"teacher": "DeepSeek-R1, as our teacher", "prism": PRISM}
"""Systems whose probabilities decide: the folder of their traces, and their row."""
PANELS = {"ensemble": "paper", "pool A": "pool_a", "pool B": "pool_b"}
"""The panels by name, and their arguments of configs/judges.py; the first is the main one."""
OUTPUTS = {
    "Table 1": "systems/main.csv",
    "Table 2, ablation A": "base/thresholds.csv",
    "Table 3, ablation B": "student/inference.csv",
    "Table 4, ablation C": "systems/pathways.csv",
    "Table 5, ablation D": "student/mechanism.csv",
    "Table 6, agreement of judges": "judges/judge_agreement.csv",
    "Table 7, F1 by judge": "judges/judge_robustness.csv",
    "Table 8, significance": "systems/significance.csv",
    "Table 9, slow margin": "student/margin_sweep.csv",
    "Table 10, grid": "student/cost_margin_grid.csv",
    "Table 11, cost ratios": "student/cost_sensitivity.csv",
    "Table 12, domains": "domains/domain_transfer.csv",
    "Table 13, calibration": "student/calibration_quality.csv",
    "Table 14, drift": "student/drift.csv",
    "latencies of tables 3, 9, 10 and 11": "latency/latency.csv",
    "Figure 3, Pareto frontier": "latency/latency_pareto.csv",
    "Figure 4, structured trace": "student/case_study.csv",
    "Figure 5, slow margin": "student/margin_sweep.csv",
    "Figure 6, reliability": "student/calibration_quality.csv",
    "table 7, raw and corrected": f"judges/judge_corrected_{PRISM}.csv",
    "both methods beside each other": "methods/method.csv",
    "reading before and after writing": "student/written.csv",
}
"""The file below `tables/` of each numbered table and figure of the paper, and of tables of ours."""
DIAGRAMS = ("Figure 1", "Figure 2")


class Inputs(NamedTuple):
    """What the stages start from."""

    source: str  # checkout of the benchmark
    agent_data: tuple[str, ...]  # its training data, as FILE or DOMAIN=FILE
    weights: str  # folder of the weights
    gpus: int  # number of GPUs; 0 in a rehearsal, which needs none
    curated: int  # number of decisions that curation keeps
    sample: int  # events on the page for people
    budget: float  # USD that all answers together may cost
    human: tuple[str, ...] = ()  # files of votes that annotators downloaded from the page
    annotators: tuple[str, ...] = ()  # the command that answers the page in a rehearsal
    address: str = ""  # where the fake endpoint of a rehearsal answers
    training: tuple[str, ...] = ()  # flags that shrink a training
    shares: tuple[str, ...] = ()  # the flag that says how many training streams calibrate, where it is not the default

    @property
    def holds_out(self) -> bool:
        """Whether training data of the held-out domain can be told apart, and others are left."""
        named = {text.partition("=")[0] for text in self.agent_data if "=" in text}
        return DOMAIN in named and len(named) > 1


def stages(folder: epath.Path, inputs: Inputs) -> list[Stage]:
    """All stages in order."""
    paper = _Paper(folder, inputs)
    return [
        *paper.labels(),
        *(stage for name in paper.students() for stage in paper.student(name)),
        *paper.answers(),
        *paper.verdicts(),
        *paper.people(),
        *paper.tables(),
    ]


def pathways_of(listed: Sequence[Stage]) -> list[str]:
    """The pathway of each training among the stages."""
    return [stage.takes for stage in listed if isinstance(stage.takes, str)]


def outcome(folder: epath.Path, inputs: Inputs) -> Iterator[str]:
    """The paper's tables and figures with the file of each, and the rows that could not be made, in lines."""
    yield "The paper's tables and figures:"
    width = max(map(len, OUTPUTS))
    for name, file in OUTPUTS.items():
        path = folder / "tables" / file
        drawn = path.with_suffix(".svg")  # where matplotlib is installed
        path = drawn if name.startswith("Figure") and drawn.exists() else path
        yield f"  {name:{width}}  {path if path.exists() else _why_not(name, inputs)}"
    yield f"  {', '.join(DIAGRAMS):{width}}  not made: diagrams of the method, without numbers"
    lacking = [row for row, name in PAPER_SYSTEMS.items() if not (_published(inputs) / name).is_dir()]
    for row in lacking:
        yield f"  row {row} of table 1: not made: {_published(inputs) / PAPER_SYSTEMS[row]} is no folder of traces"
    if not inputs.human:
        page = folder / "people.html"
        yield f"  human rows of tables 1, 6 and 7: not made: --human names no files; people answer {page}"


def _why_not(name: str, inputs: Inputs) -> str:
    if name.startswith("Table 12") and not inputs.holds_out:
        return f"not made: --agent_data names no file of {DOMAIN} beside another domain's"
    if name.startswith("table 7"):
        return "not made: --human names no files"
    return "not made: the stage above says why"


def _published(inputs: Inputs) -> epath.Path:
    return epath.Path(inputs.source) / "eval" / "traces_new"


class _Paper:
    """The files of a folder, and the stages that make them."""

    def __init__(self, folder: epath.Path, inputs: Inputs):
        self.folder, self.inputs = folder, inputs
        cache = folder / "answers.sqlite"
        self.remote = (f"--config.remote.cache={cache}", f"--config.remote.budget={inputs.budget}")

    def streams(self, split: str) -> epath.Path:
        return self.folder / "streams" / f"{split}.jsonl"

    def votes(self, panel: str) -> epath.Path:
        return self.folder / f"votes_{panel.replace(' ', '_')}.jsonl"

    def students(self) -> tuple[str, ...]:
        """Everything that writes texts of its own, the main student first."""
        trained = (name for name in PATHWAYS if name not in (MAIN, "joint"))
        return (MAIN, *trained, PRINTED, *([HELD_OUT] if self.inputs.holds_out else ()), BASE)

    def asked(self, config: str) -> tuple[str, ...]:
        """The flags of a config of the teacher or of a baseline; in a rehearsal, at the fake endpoint."""
        there = self.inputs.address
        moved = (f"--config.endpoint.base_url={there}",) if there else ()
        priced = ("--config.endpoint.input_price=0.56", "--config.endpoint.output_price=1.68") if there else ()
        return (f"--config=configs/{config}", *moved, *priced, *self.remote)

    def judge(
        self, what: str, files: Sequence[str], made: epath.Path, requests: int, before: int = 0, panel: str = "ensemble"
    ) -> Stage:
        config = f"configs/judges.py:{PANELS[panel]}"
        there = f",{self.inputs.address}" if self.inputs.address else ""
        # The texts are public, and the rubric is asked about them as they are.
        rubric = ("--config.prompt=official", f"--config.source={self.inputs.source}", "--config.remote.redact=False")
        words = main_of(
            "judge", f"--config={config}{there}", *rubric, *self.remote, f"--votes={self.votes(panel)}", *files
        )
        return Stage(f"{panel} judges {what}", words, made.exists, takes=Asks("judge", config, requests, before))

    def labels(self) -> Iterator[Stage]:
        """Streams, the teacher's proposals, their verdicts, and curation."""
        out = self.folder / "streams"
        data = (f"--agent_data={text}" for text in self.inputs.agent_data)
        source = ("--from=proactivebench", f"--source={self.inputs.source}")
        words = main_of("import", *source, *data, *self.inputs.shares, f"--workdir={out}")
        yield Stage("the streams of the benchmark's own files", words, self.streams("human").exists)
        taught = {split: self.folder / f"taught_{split}.jsonl" for split in ("train", "test")}
        for split, path in taught.items():
            words = main_of("label", *self.asked("teacher.py"), f"--streams={self.streams(split)}", f"--out={path}")
            asks = Asks("teacher", "configs/teacher.py", EVENTS[split])
            yield Stage(f"the teacher labels the {split} streams", words, path.exists, takes=asks)
        judged, scores = self.folder / "judged_train.jsonl", self.folder / "teacher.parquet"
        files = (f"--streams={taught['train']}", f"--out={judged}")
        yield self.judge("the teacher's proposals to train on", files, judged, 2 * EVENTS["train"])
        files = (f"--streams={taught['test']}", f"--scores_out={scores}")
        yield self.judge("the teacher's proposals at the test steps", files, scores, 2 * TEST_EVENTS)
        for name, how in (("curated", ()), ("curated_paper", ("--method=paper",))):
            out = self.folder / f"{name}.jsonl"
            words = main_of("curate", f"--streams={judged}", f"--out={out}", f"--count={self.inputs.curated}", *how)
            title = f"the decisions of highest R_DC are kept{', as printed' if how else ''}"
            yield Stage(title, words, summary_path(out).exists)

    def student(self, name: str) -> Iterator[Stage]:
        """A training, the verdicts on what the student wrote, and its calibration and evaluation."""
        run, labelled = self.folder / name, self.folder / name / "judged.parquet"
        yield self._trained(name)
        # Silence at a step is one question, whoever is silent.
        before = TEST_EVENTS + CALIBRATION_EVENTS * (name != MAIN)
        files = (f"--streams={run}/written_*.jsonl", f"--scores={run}/scores.parquet", f"--scores_out={labelled}")
        requests = 2 * (CALIBRATION_EVENTS + TEST_EVENTS)
        yield self.judge(f"what {name} wrote", files, labelled, requests, before)
        out = self.folder / "evaluated" / name
        words = main_of("evaluate", f"--scores={labelled}", f"--workdir={out}")
        yield Stage(f"{name}: calibrated and evaluated", words, (out / "report.html").exists)

    def _trained(self, name: str) -> Stage:
        folder, inputs = self.folder, self.inputs
        pathway = name if name in PATHWAYS else MAIN
        curated = "curated_paper.jsonl" if name == PRINTED else "curated.jsonl"
        start = folder / MAIN if pathway in SECOND_STAGES else inputs.weights
        words = (
            f"--config={CONFIGS[inputs.gpus or 1]}",
            f"--config.pathway.name={pathway}",
            "--config.pathway.filter=off",
            "--config.data.source=",
            f"--config.data.train_source={folder / (curated if PATHWAYS[pathway].filtered else 'judged_train.jsonl')}",
            *(f"--config.data.{split}_source={self.streams(split)}" for split in ("calibration", "test")),
            *([f"--config.data.without_domain={DOMAIN}"] if name == HELD_OUT else ()),
            *(["--config.writing.reread=True"] if name == MAIN else ()),
            f"--config.training.start={start}",
            *inputs.training,
            f"--workdir={folder / name}",
        )
        scores = folder / name / "scores.parquet"
        if name == BASE:
            return Stage("the model before training writes its texts", main_of("evaluate", *words), scores.exists)
        script = {0: main_of("train"), 1: ("launch/a100.sh",), 8: ("launch/node.sh",)}[inputs.gpus]
        return Stage(f"{name}: trained, its texts written", (*script, *words), scores.exists, takes=pathway)

    def answers(self) -> Iterator[Stage]:
        """The export, what student and teacher did as traces, and the traces of prompted baselines."""
        run, model, traces = self.folder / MAIN, self.folder / "model", self.folder / "traces"
        calibration = f"--calibration={self.folder / 'evaluated' / MAIN / 'calibration.json'}"
        words = main_of("export", f"--model={run}", calibration, f"--workdir={model}")
        yield Stage("the student is exported", words, model.exists)
        read = {
            "prism": (
                f"--written={run}/written_test.jsonl",
                f"--scores={run}/judged.parquet",
                calibration,
            ),
            "teacher": (f"--taught={self.folder}/taught_test.jsonl",),
        }
        for name, files in read.items():
            words = main_of("official_scores", *files, f"--workdir={traces / name}")
            yield Stage(f"{DONE[name]}: what it did, as traces", words, (traces / name).exists)
        for name, row in ANSWERING.items():
            source = f"--source={self.inputs.source}"
            words = main_of(
                "label", "--agent", *self.asked(f"baselines.py:{name}"), source, f"--workdir={traces / name}"
            )
            asks = Asks("agent", f"configs/baselines.py:{name}", TEST_EVENTS)
            yield Stage(f"{row}, prompted as the benchmark's agent", words, (traces / name).exists, takes=asks)

    def systems(self) -> dict[str, epath.Path]:
        """The folder of traces of each row of the main table."""
        published = {row: _published(self.inputs) / name for row, name in PAPER_SYSTEMS.items()}
        own = {row: self.folder / "traces" / name for name, row in {**ANSWERING, **DONE}.items()}
        return {row: path for row, path in published.items() if path.is_dir()} | own

    def as_streams(self, traces: epath.Path) -> epath.Path:
        """The file of streams of a folder of traces."""
        whose = "published" if traces.parent == _published(self.inputs) else "prompted"
        return self.folder / "systems" / whose / "streams" / f"{traces.name}.jsonl"

    def verdicts(self) -> Iterator[Stage]:
        """Verdicts of the main panel on what every system did, and of both pools on the two of table 7."""
        systems = self.systems()
        for folder in dict.fromkeys(path.parent for path in systems.values()):
            out = self.as_streams(folder / "any").parent
            words = main_of("official_scores", f"--traces={folder}", f"--workdir={out.parent}")
            yield Stage(f"the traces of {folder} as streams", words, out.exists)
        for panel in PANELS:
            rows = {row: path for row, path in systems.items() if panel == "ensemble" or row in (PRISM, BASELINE)}
            first, *others = (self.as_streams(path) for path in rows.values())
            made = self.folder / f"judged_{panel.replace(' ', '_')}.jsonl"
            files = (f"--streams={first}", *(f"--system={path.stem}={path}" for path in others), f"--out={made}")
            requests = len(rows) * TEST_EVENTS
            # The main panel judged the texts of teacher and student before.
            before = len(DONE) * TEST_EVENTS * (panel == "ensemble")
            what = f"what {len(rows)} systems did"
            yield self.judge(what, (*files, "--config.asked=made"), made, requests, before, panel)

    def people(self) -> Iterator[Stage]:
        """The page for people, and in a rehearsal those who answer it."""
        page = self.folder / "people.html"
        shown = [f"--system={row}={self.as_streams(self.systems()[row])}" for row in (BASELINE, PRISM)]
        words = main_of("judge", f"--page_out={page}", *shown, f"--sample={self.inputs.sample}")
        yield Stage("the page for people", words, page.exists)
        if annotators := self.inputs.annotators:
            made, truth = epath.Path(self.inputs.human[-1]), self.folder / "truth.html"
            yield Stage("simulated annotators answer it", (*annotators, f"--page={page}"), made.exists)
            words = main_of("judge", f"--page_out={truth}", *shown)
            yield Stage("the same page of all events", words, truth.exists)
            words = (*annotators, f"--page={truth}", "--truth")
            yield Stage("what the simulated users want", words, (self.folder / "truth.jsonl").exists)

    def tables(self) -> Iterator[Stage]:
        """All tables."""
        panels = tuple(f"--panel={name}={self.votes(name)}" for name in PANELS)
        human = (f"--human={','.join(self.inputs.human)}",) if self.inputs.human else ()
        systems = tuple(f"--system={row}={path}" for row, path in self.systems().items())
        two = tuple(text for text in systems if text.split("=")[1] in (BASELINE, PRISM))
        students = tuple(
            f"--system={PAPER_NAMES.get(name, name)}={self.folder / name / 'judged.parquet'}"
            for name in self.students()
            if name in PATHWAYS
        )
        against = f"--against={BASELINE}"
        test, model = self.streams("test"), self.folder / "model"
        scores = {name: f"--scores={self.folder / name / 'judged.parquet'}" for name in self.students()}
        timed = (f"--model={model}", f"--streams={test}")
        yield self.table("systems", "main", *systems, panels[0], *human)
        yield self.table("systems", "significance", *systems, panels[0], against)
        yield self.table("systems", "pathways", *students)
        yield self.table("judges", "judge_agreement", *two, *panels, *human)
        truth = (f"--panel=truth={self.folder / 'truth.jsonl'}",) if self.inputs.annotators else ()
        yield self.table("judges", "judge_robustness", *two, *panels, *truth, *human, against)
        yield self.table("base", "thresholds", scores[BASE])
        yield self.table("student", "all", scores[MAIN], made="tables.md")
        yield self.table("latency", "latency", *timed)
        yield self.table("latency", "latency_pareto", *timed, scores[MAIN])
        yield self.table(
            "methods",
            "methods",
            scores[MAIN],
            f"--scores_paper={self.folder / PRINTED / 'judged.parquet'}",
            made="method.csv",
        )
        if self.inputs.holds_out:
            yield self.table("domains", "domain_transfer", scores[HELD_OUT], f"--held_out={DOMAIN}")

    def table(self, folder: str, name: str, *flags: str, made: str = "") -> Stage:
        """The stage of an experiment."""
        out = self.folder / "tables" / folder
        words = main_of("experiments", name, *flags, "--paper_numbers", f"--workdir={out}")
        return Stage(f"tables: {name}", words, (out / (made or f"{name}.csv")).exists)
