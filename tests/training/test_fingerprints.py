"""Changed streams, tokenizers, prompts and weights are noticed when a run resumes or is evaluated."""

import dataclasses
import hashlib
import json
import logging
import re

import pytest
import tiny
from absl import logging as absl_logging

from prism_jax.runs import pipeline
from prism_jax.runtime.dataclass_config import ConfigError
from prism_jax.runtime.digests import weights_sha256
from prism_jax.streams.jsonl import write_streams
from prism_jax.streams.simulator import simulate
from prism_jax.student.prompting import template as template_module
from prism_jax.training.fingerprints import check_start, check_tokenizer, of_run
from prism_jax.training.run import reopen_run, resolve
from prism_jax.training.workdir import Workdir


@pytest.fixture
def run(tmp_path, monkeypatch):
    """A run on a file of streams that has begun: everything but the training itself."""
    streams = [simulate(tiny.CONFIG.simulator, i) for i in range(24)]
    source = tmp_path / "streams.jsonl"
    write_streams(source, streams)
    data = dataclasses.replace(tiny.CONFIG.data, name="jsonl", source=str(source))
    config = dataclasses.replace(tiny.CONFIG, data=data)
    monkeypatch.setattr(pipeline, "train", lambda job, **_: {})
    workdir = Workdir(tmp_path / "run")
    pipeline.train_run(config, workdir, report=False)
    return config, workdir, streams, source


def refuses(workdir, config, message):
    """Both evaluation and training raise this error, and change nothing."""
    before = {path: path.read_bytes() for path in workdir.path.iterdir() if path.is_file()}
    for attempt in (lambda: reopen_run(workdir), lambda: pipeline.train_run(config, workdir, report=False)):
        with pytest.raises(ConfigError, match=message):
            attempt()
    assert {path: path.read_bytes() for path in workdir.path.iterdir() if path.is_file()} == before


def test_an_unchanged_run_is_reopened_and_resumes(run):
    config, workdir, *_ = run
    kept = json.loads(workdir.fingerprints.read_text())
    assert kept == of_run(reopen_run(workdir).splits, reopen_run(workdir).template)
    assert list(kept) == ["train", "validation", "calibration", "test", "tokenizer", "prompt"]
    pipeline.train_run(config, workdir, report=False)
    assert json.loads(workdir.fingerprints.read_text()) == kept


@pytest.mark.parametrize(("split", "what"), [("train", "training"), ("calibration", "calibration"), ("test", "test")])
def test_inverted_labels_in_the_source_are_noticed(run, split, what):
    config, workdir, streams, source = run
    chosen = {stream.id for stream in getattr(resolve(config).splits, split)}

    def inverted(stream):
        steps = tuple(dataclasses.replace(step, y_need=1 - step.y_need) for step in stream.steps)
        return dataclasses.replace(stream, steps=steps)

    write_streams(source, [inverted(stream) if stream.id in chosen else stream for stream in streams])
    refuses(workdir, config, rf"^{workdir}: found the {what} streams changed \([0-9a-f]{{12}}\), expected those of")


def test_another_order_of_the_same_file_is_no_change(run):
    _, workdir, streams, source = run
    write_streams(source, streams[::-1])
    assert reopen_run(workdir).splits.test


def test_swapped_ids_in_the_tokenizer_are_noticed(run):
    config, workdir, *_ = run
    content = json.loads(workdir.tokenizer.read_text())
    vocab = content["model"]["vocab"]
    first, second = list(vocab)[40], list(vocab)[41]
    vocab[first], vocab[second] = vocab[second], vocab[first]
    workdir.tokenizer.write_text(json.dumps(content))
    message = f"^{re.escape(str(workdir.tokenizer))}: found the tokenizer changed "
    with pytest.raises(ConfigError, match=message):
        check_tokenizer(workdir)
    refuses(workdir, config, message)


OTHER_WORDS = {
    **{"NEED": "Need:", "LINE_END": "\n\n", "RESPONSE": "\n\n", "CONSTANT_OFFER": " any offer"},
    "event_text": lambda event, before: (event.text, ""),  # without the time between events
}


@pytest.mark.parametrize("name", OTHER_WORDS)
def test_other_words_of_the_prompt_are_noticed(run, monkeypatch, name):
    config, workdir, *_ = run
    monkeypatch.setattr(template_module, name, OTHER_WORDS[name])
    refuses(workdir, config, rf"^{workdir}: found the words of the prompt changed \(")


def test_a_run_of_an_older_version_is_reopened_with_a_note(run, monkeypatch, caplog):
    config, workdir, *_ = run
    monkeypatch.setattr(absl_logging.get_absl_logger(), "propagate", True)
    workdir.fingerprints.unlink()
    assert reopen_run(workdir).splits.test
    (message,) = [record.getMessage() for record in caplog.records if record.levelno >= logging.WARNING]
    assert (
        message
        == f"{workdir.fingerprints}: no such file, as in runs of older versions: changed inputs are not detected"
    )
    pipeline.train_run(config, workdir, report=False)
    assert workdir.fingerprints.exists()


def test_weights_must_have_the_digest_of_the_config(tmp_path):
    folder = tmp_path / "weights"
    folder.mkdir()
    for name, content in (("b.safetensors", b"2"), ("a.safetensors", b"1"), ("config.json", b"{}")):
        (folder / name).write_bytes(content)
    (tmp_path / "w.gguf").write_bytes(b"12")
    both = hashlib.sha256(b"12").hexdigest()
    for path in (folder, tmp_path / "w.gguf"):
        check_start(str(path), weights_sha256(path), both)
        check_start(str(path), weights_sha256(path), both.upper())
        with pytest.raises(ConfigError, match=rf"^training\.start_sha256: found {both} for {path}, expected 0000"):
            check_start(str(path), weights_sha256(path), "0" * 64)
    with pytest.raises(FileNotFoundError, match=r"none\.gguf: found no weights, expected a GGUF file or safetensors"):
        weights_sha256(tmp_path / "none.gguf")
