"""A workdir in a bucket, simulated in memory: everything except checkpoints, which Orbax writes with its own driver."""

import json
import tempfile

import pytest
from etils import epath
from etils.epath import backend
from fsspec.implementations.memory import MemoryFileSystem

from prism_jax.scores import Scores, read_scores, write_scores
from prism_jax.student.prompting.tokenizer import Tokenizer
from prism_jax.training.logs.progress import Board, StepLog
from prism_jax.training.run_config import RunConfig
from prism_jax.training.workdir import Workdir


class Bucket(MemoryFileSystem):
    """Stores whole objects only, as buckets do, and has no folders."""

    protocol = "gs"
    store, pseudo_dirs = {}, [""]

    def _open(self, path, mode="rb", **options):
        if "a" in mode or "+" in mode:
            raise NotImplementedError(f"{path}: mode {mode!r}")
        return super()._open(path, mode, **options)


@pytest.fixture
def workdir(monkeypatch):
    Bucket.store.clear()
    bucket = Bucket(skip_instance_cache=True)
    monkeypatch.setattr(backend.fsspec_backend, "_get_filesystem", lambda name: bucket)
    return epath.Path("gs://bucket/run")


def test_the_files_of_a_run_can_be_read_back(workdir, template):
    Workdir(workdir).claim(RunConfig())
    assert Workdir(workdir).load_config() == RunConfig()
    template.tokenizer.save(workdir / "tokenizer.json")
    assert Tokenizer.load(workdir / "tokenizer.json").definition == template.tokenizer.definition
    rows = [{"stream": "a", "step": i, "candidate": 0, "p_need_fast": 0.5, "p_accept_fast": 0.25} for i in range(3)]
    write_scores(workdir / "scores.parquet", Scores.from_rows(rows))
    assert read_scores(workdir / "scores.parquet").p_accept_fast.tolist() == [0.25] * 3
    assert sorted(file.name for file in workdir.iterdir()) == ["config.json", "scores.parquet", "tokenizer.json"]


def test_tensorboard_events_are_copied_on_flush_and_their_temporary_file_is_removed(workdir, tmp_path, monkeypatch):
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    board = Board(workdir / "tensorboard", 0)
    sizes = []
    for step in (1, 2):
        board.write(step, {"loss": 0.5})
        board.flush()
        (file,) = (workdir / "tensorboard").iterdir()
        sizes.append(len(file.read_bytes()))
    assert 0 < sizes[0] < sizes[1]
    assert list(tmp_path.iterdir())
    board.close()
    assert not list(tmp_path.iterdir())


def test_logs_are_written_as_whole_objects_and_truncated_on_resume(workdir):
    Workdir(workdir).claim(RunConfig())
    for start, stop in ((0, 3), (2, 4)):
        log = StepLog(workdir / "metrics.jsonl", start)
        for step in range(start + 1, stop + 1):
            log.write({"step": step, "from": start})
        log.flush()
        assert log.reached == max(start, 3 * (start > 0))
        log.close()
    written = [json.loads(line) for line in (workdir / "metrics.jsonl").read_text().splitlines()]
    assert [(line["step"], line["from"]) for line in written] == [(1, 0), (2, 0), (3, 2), (4, 2)]
