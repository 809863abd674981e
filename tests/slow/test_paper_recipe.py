"""The paper's recipe by its commands and configs: label, judge, curate, train, evaluate, export.

Flags shrink the sizes and name the fake endpoint, which answers for the models of the configs; the student is a small
random Qwen3 as transformers writes it.
"""

import json
import os
import pathlib
import shutil

import forked
import numpy as np
import pytest
from hf_models import libraries, random_model

from prism_jax.labelling.judges.simulated import SimulatedJudge
from prism_jax.labelling.teacher.prompts import PromptSettings
from prism_jax.labelling.teacher.simulated import SimulatedTeacher, TeacherQuality
from prism_jax.remote.fake import FakeEndpoint
from prism_jax.scores import read_scores
from prism_jax.streams.edit import without_answers
from prism_jax.streams.fenced import event_text
from prism_jax.streams.jsonl import read_streams, write_streams
from prism_jax.streams.simulator import SimulatorConfig, simulate
from prism_jax.student.prompting.template import PromptConfig, make_tokenizer

pytestmark = pytest.mark.slow
SPLITS = {"train": range(8), "calibration": range(8, 12), "test": range(12, 16)}
CURATED = 12
POOL_A = ("openai/gpt-4o", "anthropic/claude-3.5-sonnet", "google/gemini-2.5-flash")
QWEN3_VOCABULARY = 151_936


@pytest.fixture(scope="module")
def users():
    """Simulated users with all that is true of them."""
    return [simulate(SimulatorConfig(), index, "always") for index in range(16)]


@pytest.fixture(scope="module")
def endpoint(users):
    """Answers for the teacher and for the judges of pool A, each of whom errs independently."""
    models = {"deepseek-reasoner": SimulatedTeacher(users, PromptSettings(), TeacherQuality())}
    for seed, name in enumerate(POOL_A, start=1):
        models[name] = SimulatedJudge(users, sensitivity=0.9, specificity=0.9, seed=seed)
    with FakeEndpoint(lambda body: models[body["model"]](body)) as fake:
        yield fake


@pytest.fixture(scope="module")
def weights(users, tmp_path_factory, root):
    """A small random Qwen3-8B: untied, with Qwen3's own tokenizer and vocabulary where they are present."""
    folder = tmp_path_factory.mktemp("Qwen3-8B")
    own = pathlib.Path(os.environ.get("PRISM_QWEN3_TOKENIZER", root.parent / "shared" / "qwen3-tokenizer"))
    if (own / "tokenizer.json").is_file():
        shutil.copy(own / "tokenizer.json", folder)
        vocabulary = QWEN3_VOCABULARY
    else:
        tokenizer = make_tokenizer(users, PromptConfig())
        tokenizer.save(folder / "tokenizer.json")
        vocabulary = tokenizer.size
    model = random_model(vocab_size=vocabulary, tie_word_embeddings=False, theta=1e6, max_position_embeddings=40_960)
    model.save_pretrained(folder)
    return folder


@pytest.fixture(scope="module")
def run():
    """Runs a main with the keys that the configs name in its environment."""
    keys = {"DEEPSEEK_API_KEY": "sk-not-a-key", "OPENROUTER_API_KEY": "sk-not-a-key"}

    def run(main, *arguments):
        done = forked.run("prism_jax", main, *arguments, late=keys)
        assert done.returncode == 0, done.stderr
        assert "not-a-key" not in done.stdout + done.stderr
        return done

    return run


@pytest.fixture(scope="module")
def folder(users, endpoint, weights, run, tmp_path_factory):
    """A folder with every file of the recipe, from unlabelled streams to an exported student."""
    folder = tmp_path_factory.mktemp("recipe")
    write_streams(folder / "bare.jsonl", map(without_answers, users))
    remote = (f"--config.remote.cache={folder}/cache.sqlite", "--config.remote.budget=5")
    prices = ("--config.endpoint.input_price=0.56", "--config.endpoint.output_price=1.68")
    teacher = ("--config=configs/teacher.py", f"--config.endpoint.base_url={endpoint.url}", *prices, *remote)
    run("label", *teacher, f"--streams={folder}/bare.jsonl", f"--out={folder}/taught.jsonl")
    files = (f"--streams={folder}/taught.jsonl", f"--votes={folder}/votes.jsonl", f"--out={folder}/judged.jsonl")
    run("judge", f"--config=configs/judges.py:pool_a,{endpoint.url}", *remote, *files)
    judged = read_streams(folder / "judged.jsonl")
    for split, numbers in SPLITS.items():
        write_streams(folder / f"{split}.jsonl", [judged[number] for number in numbers])
    run("curate", f"--streams={folder}/train.jsonl", f"--out={folder}/curated.jsonl", f"--count={CURATED}")
    sources = {"train": "curated.jsonl", "calibration": "calibration.jsonl", "test": "test.jsonl"}
    data = ["--config.data.source="]
    data += [f"--config.data.{split}_source={folder}/{file}" for split, file in sources.items()]
    small = ("--config.packing.context=512", "--config.writing.field_tokens=4", "--config.writing.response_tokens=4")
    start = (f"--config.training.start={weights}", "--config.pathway.filter=off")
    run("train", "--config=configs/qwen3_8b_a100.py", *start, *data, *small, f"--workdir={folder}/run")
    run("export", f"--model={folder}/run", f"--workdir={folder}/model")
    return folder


def lines_of(path):
    return [json.loads(line) for line in path.read_text().splitlines()]


def test_every_step_is_taught_and_judged_by_the_configs_models(folder, users, endpoint):
    assert max(endpoint.billed.values()) == 1
    streams = read_streams(folder / "judged.jsonl")
    assert [stream.id for stream in streams] == [stream.id for stream in users]
    for step in (step for stream in streams for step in stream.steps):
        assert step.teacher_need is not None and step.y_need in (0, 1) and len(step.votes) == 3
        (offer,) = step.candidates
        assert offer.text is None and offer.proposal and offer.teacher_accept is not None and offer.y_accept in (0, 1)
    assert {row["model"] for row in lines_of(folder / "taught.rows.jsonl")} == {"deepseek-reasoner"}
    assert {vote["model"] for vote in lines_of(folder / "votes.jsonl")} == set(POOL_A)


def test_the_student_trains_three_epochs_on_the_curated_decisions(folder):
    curated = read_streams(folder / "curated.jsonl")
    assert sum(len(step.candidates) for stream in curated for step in stream.steps) == CURATED
    steps = lines_of(folder / "run" / "metrics.jsonl")
    assert len(steps) == 3 * CURATED // 4
    assert all(np.isfinite(step["loss"]) for step in steps)
    config = json.loads((folder / "run" / "config.json").read_text())
    assert config["training"]["master"] == "split" and config["student"]["param_dtype"] == "bfloat16"
    assert np.isfinite(read_scores(folder / "run" / "scores.parquet").p_accept_slow).any(), "it has a slow pass"


def test_transformers_reads_the_need_of_the_exported_student_as_it_was_scored(folder):
    torch, transformers = libraries()
    model = transformers.AutoModelForCausalLM.from_pretrained(folder / "model", dtype=torch.float32)
    tokenizer = transformers.AutoTokenizer.from_pretrained(folder / "model")
    slots = json.loads((folder / "model" / "prism.json").read_text())["slots"]
    scores = read_scores(folder / "run" / "scores.parquet")
    scored = dict(zip(zip(scores.stream, scores.step, strict=True), scores.p_need_fast, strict=True))
    found = []
    for stream in read_streams(folder / "test.jsonl")[:3]:
        texts = ["".join(event_text(*pair)) for pair in zip(stream.events, (None, *stream.events), strict=False)]
        for number, step in enumerate(stream.steps):
            messages = [{"role": "system", "content": slots["system"]}]
            messages += [{"role": "user", "content": text} for text in texts[: step.event + 1]]
            opened = tokenizer.apply_chat_template(
                messages, tokenize=True, return_dict=False, add_generation_prompt=True, enable_thinking=False
            )
            with torch.no_grad():
                logits = model(torch.tensor([opened + slots["need"]["ids"]])).logits[0, -1].double()
            need = torch.sigmoid(logits[slots["yes"]["id"]] - logits[slots["no"]["id"]]).item()
            found.append((need, scored[stream.id, number]))
    theirs, ours = np.array(found).T
    np.testing.assert_allclose(theirs, ours, atol=0.02)  # ours were computed in bfloat16
    assert np.std(ours) > 0.05
