"""Loads the live reader of an exported directory. The agent imports the language model here and nowhere else."""

from __future__ import annotations

import contextlib
import dataclasses
import os
import tempfile
from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from absl import flags, logging
from etils import epath

from prism_jax.agent.exported import Exported, ExportedError, check_slots, fingerprint, with_gate
from prism_jax.agent.reader import Reader
from prism_jax.runtime.dataclass_config import ConfigError, from_config_dict
from prism_jax.runtime.digests import check_folder, weights_sha256
from prism_jax.runtime.distributed import keep_programs

if TYPE_CHECKING:
    from prism_jax.agent.decision_reader import DecisionReader
    from prism_jax.agent.engine_reader import EngineReader
    from prism_jax.gate import Gate
    from prism_jax.remote.cache import Cache
    from prism_jax.student.products import Compute
    from prism_jax.student.prompting.template import Template, WritingConfig
    from prism_jax.student.scoring.student import Student

TOKENIZER_FILES = ("prism.json", "tokenizer.json", "tokenizer_config.json", "chat_template.jinja")
"""What an agent reads of a directory whose weights are served elsewhere."""


@contextlib.contextmanager
def exported_model(folder: str) -> Iterator[epath.Path]:
    """An exported directory; the workdir of a run or a probe is exported to a temporary one, which no error names."""
    path = epath.Path(folder)
    workdirs = {"probe": path / "probe" / "probe.json", "student": path / "checkpoints"}
    kind = next((name for name, mark in workdirs.items() if mark.exists()), None)
    if kind is None or (path / "prism.json").exists():
        yield path
        return
    with tempfile.TemporaryDirectory() as temporary:
        model = epath.Path(temporary) / "model"
        if kind == "probe":
            from prism_jax.runs.probe_export import export_probe

            export_probe(path, model)
        else:
            from prism_jax.runs.export import export_run

            export_run(folder, model)
        try:
            yield model
        except (ValueError, OSError) as error:
            if str(model) not in str(error):
                raise
            raise ValueError(str(error).replace(str(model), str(folder))) from error


def define_number_flags(default: str | None = None) -> None:
    """Defines the flags of the numbers in which a student is loaded and multiplied."""
    kinds = ["float32", "bfloat16"]
    flags.DEFINE_enum("dtype", default, kinds, "Dtype of the parameters.")
    flags.DEFINE_enum("compute", default, kinds, "student.compute: bfloat16 is faster on CPUs that multiply in it.")


def load_reader(
    folder: str | os.PathLike[str],
    exported: Exported,
    *,
    dtype: str = "float32",
    compute: Compute = "float32",
    context: int | None = None,
    memory: int | None = None,
    keep: float | None = None,
    offers: int | None = None,
    compilation_cache: str | None = None,
    name: str | None = None,
    report: Callable[[str], None] = logging.info,
) -> Reader:
    """Loads the student or the probe, its tokenizer and template, and makes the live reader.

    Every file of the directory, to users `name`, is compared with its digest first; `report` is told how many, and how
    long it took.
    Programs that this process compiles are kept for its next start in the folder `compilation_cache`: `off` keeps none,
    None is the folder that JAX has been given already, or else the default of the commands
    (`prism_jax.runtime.distributed`). `compute` is that of
    `prism_jax.student.model_config.StudentConfig`. A probe on states reads and computes in the `dtype` of its
    training alone. `context`, `memory`, `keep` and `offers` are those of `prism_jax.agent.live.LiveConfig`; a probe on
    words has no use for them.

    Raises:
      ValueError, OSError: naming the file that cannot be used, that has changed since the export, or that its list of
        digests lacks.
    """
    report(f"{name or folder}: {check_folder(folder, exported.fingerprints['model'])}")
    keep_programs(compilation_cache, all_of_them=True)
    settings = {"context": context, "memory": memory, "keep": keep, "offers": offers}
    config: dict[str, Any] = {name: value for name, value in settings.items() if value is not None}
    if exported.is_probe:
        return _load_probe(folder, exported, {"dtype": dtype, "compute": compute}, config)
    from prism_jax.agent.live import Live, LiveConfig

    return Live(
        load_student(folder, exported, dtype, compute),
        has_slow_pass=exported.has_slow_pass,
        writes_responses=exported.writes_responses,
        writing=writing_of(folder, exported),
        config=LiveConfig(**config),
    )


def load_student(
    folder: str | os.PathLike[str], exported: Exported, dtype: str, compute: Compute = "float32"
) -> Student:
    """Loads the student of an exported directory with its template; errors are those of `load_reader`."""
    from prism_jax.student import weights
    from prism_jax.student.dispatch import check_compute
    from prism_jax.student.qwen3 import Qwen3
    from prism_jax.student.scoring.student import Student

    check_compute(compute)
    template = load_template(folder, exported)
    if exported.base_sha256 is not None:
        base = weights.base_of(folder)
        if (found := weights_sha256(base)) != exported.base_sha256:
            raise ExportedError(
                f"{base}: found weights with the SHA-256 {found}, expected {exported.base_sha256}, the base of the "
                f"adapters in {folder}"
            )
    loaded = weights.load(folder, dtype)
    return Student(Qwen3(dataclasses.replace(loaded.model.config, compute=compute)), loaded.params, template)


def load_template(folder: str | os.PathLike[str], exported: Exported) -> Template:
    """The prompt template over the tokenizer of an exported directory; ExportedError unless it has the same slots."""
    from prism_jax.student.prompting.template import PromptConfig, Template
    from prism_jax.student.prompting.tokenizer import Tokenizer

    template = Template(Tokenizer.load(folder), PromptConfig(system=exported.slots["system"]))
    check_slots(exported, template.describe(), folder)
    return template


def load_engine(
    folder: str | os.PathLike[str],
    exported: Exported,
    engine: str,
    *,
    key: str = "",
    deadline: float = 10.0,
    context: int | None = None,
    keep: float | None = None,
    name: str | None = None,
    report: Callable[[str], None] = logging.info,
) -> EngineReader:
    """Makes the reader of a student that an inference engine serves, named as `--engine=NAME:URL` names it.

    Of the directory only prism.json and the tokenizer are read, and compared with their digests. `key` is the name of
    the environment variable that holds the API key, `deadline` the seconds after which an event without an answer is
    one in silence. `context` and `keep` are those of `prism_jax.agent.live.LiveConfig`, `name` is that of
    `load_reader`. ValueError or OSError names what cannot be used.
    """
    from prism_jax.agent.engine_reader import EngineReader, engine_of
    from prism_jax.agent.live import most_written

    if exported.is_probe:
        raise ValueError("--engine: found it with a probe, expected it with a student")
    report(f"{name or folder}: {check_folder(folder, exported.fingerprints['model'], TOKENIZER_FILES)}")
    template = load_template(folder, exported)
    given = {"context": context, "keep": keep}
    settings: dict[str, Any] = {name: value for name, value in given.items() if value is not None}
    writing = writing_of(folder, exported)
    written = most_written(template, writing, exported.has_slow_pass, exported.writes_responses)
    route = engine_of(engine, key=key, deadline=deadline)
    settings |= {"written": written, "deadline": deadline, "sample": exported.sample, "report": report}
    return EngineReader(route, template, **settings)


def writing_of(folder: str | os.PathLike[str], exported: Exported) -> WritingConfig:
    """The budgets of what the student may write; ExportedError for a section that is none."""
    from prism_jax.student.prompting.template import WritingConfig

    try:
        return from_config_dict(WritingConfig, exported.writing or {}, "writing")
    except ConfigError as error:
        raise ExportedError(f"{folder}/prism.json: {error}") from error


def load_decisions(
    url: str,
    model: str,
    gate: Gate,
    *,
    cache: Cache,
    key: str = "",
    deadline: float = 10.0,
    questions: str | os.PathLike[str] | None = None,
    window: int = 50,
    prompt_cache: bool = True,
    redact: bool = True,
    input_price: float | None = None,
    output_price: float | None = None,
) -> tuple[DecisionReader, Exported]:
    """Makes the reader of a decision model, and what an agent needs to know of it in place of a prism.json.

    `/decisions` is added to the URL, or `/systemone` to one that `systemone:` stands before. `key` is the name of the
    environment variable with the API key, and `questions` a JSON file with the words of the questions
    (`decision_reader.Questions`); None takes the default, and `slots` asks a server of ours. `window`, `deadline` and
    `prompt_cache` are those of `DecisionReader`. With `redact` personal data is cut from what is sent. Prices are in
    USD per million tokens; None takes the table's, and on a private network nothing.

    Raises:
      ValueError, OSError: naming what cannot be used.
    """
    from prism_jax.agent.decision_reader import SLOTS, DecisionReader, Questions, Slots
    from prism_jax.remote.client import Client
    from prism_jax.remote.decisions import form_of
    from prism_jax.remote.endpoints import EndpointConfig, is_private
    from prism_jax.remote.tally import Tally

    try:
        form, address = form_of(url)
        if input_price is output_price is None and is_private(urlsplit(address).hostname or ""):
            input_price = output_price = 0.0
        endpoint = EndpointConfig(
            model,
            address,
            key=key,
            timeout=deadline,
            patience=deadline / 2,
            backoff=0.1,
            input_price=input_price,
            output_price=output_price,
        )
        client = Client(endpoint, cache, Tally(), redact=redact)
    except ValueError as error:
        raise ValueError(f"--decisions: {error} (--key, --budget, --input_price, --output_price)") from error
    words: Questions | Slots
    if questions == SLOTS:
        words, asked = Slots(), {"questions": SLOTS}
    else:
        words = Questions() if questions is None else Questions.read(questions)
        asked = words._asdict()
    settings: dict[str, Any] = {"window": window, "deadline": deadline, "cache_key": prompt_cache, "form": form}
    reader = DecisionReader(client, words, **settings)
    fingerprints = {"model": fingerprint([url, model]), "config": fingerprint({**asked, "window": window})}
    bare = Exported({}, {}, gate.point, None, None, writes_responses=False, fingerprints=fingerprints)
    return reader, with_gate(bare, gate, model)


def _load_probe(
    folder: str | os.PathLike[str], exported: Exported, kinds: Mapping[str, str], config: Mapping[str, Any]
) -> Reader:
    """Loads a probe and, if it reads one, its language model, which must be the one of its training."""
    from prism_jax.agent.probe_reader import ProbeReader
    from prism_jax.probe.saved import load_probe

    saved = load_probe(folder)
    if saved.states is None:
        return ProbeReader(saved.probe)
    from prism_jax.agent.live import LiveConfig, LiveStates
    from prism_jax.probe.kept_states import DTYPE, copied_weights, load_reader, reading_of

    for name, kind in kinds.items():
        if kind != DTYPE:
            raise ValueError(f"{name}: found {kind}, expected {DTYPE}, in which the probe was trained on states")
    states = load_reader(reading_of(copied_weights(folder), saved.states, f"{folder}/probe.json: states"))
    check_slots(exported, states.template.describe(), folder)
    return ProbeReader(saved.probe, LiveStates(states, LiveConfig(**{"context": states.context, **config})))
