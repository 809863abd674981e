import re

import pytest
from etils import epath

from prism_jax.training.logs import progress
from prism_jax.training.logs.progress import StepLog, truncate_lines


def test_truncate_keeps_lines_up_to_the_step_and_drops_an_incomplete_line(tmp_path):
    path = epath.Path(tmp_path / "metrics.jsonl")
    path.write_text('{"step": 1}\n{"step": 2}\n{"step": 3}\n{"st')
    assert truncate_lines(path, 2) == 3
    assert path.read_text() == '{"step": 1}\n{"step": 2}\n'
    assert truncate_lines(path, 2) == 2
    assert truncate_lines(epath.Path(tmp_path / "missing"), 2) == 2
    assert not (tmp_path / "missing").exists()


@pytest.mark.parametrize(
    ("line", "message"),
    [
        (b'{"step": 2', "found broken JSON at column 11 (Expecting ',' delimiter), expected a JSON value"),
        (b"\xff\xff", "found byte 0xff at 0, expected UTF-8"),
        (b"[2]", """found b'[2]\\n', expected an object with a "step\""""),
        (b'{"loss": 1.0}', """found b'{"loss": 1.0}\\n', expected an object with a "step\""""),
    ],
)
def test_a_line_that_cannot_be_read_is_named_and_kept(tmp_path, line, message):
    path = epath.Path(tmp_path / "metrics.jsonl")
    content = b'{"step": 1}\n' + line + b'\n{"step": 3}\n'
    path.write_bytes(content)
    end = "; move the file away to continue without its lines"
    with pytest.raises(ValueError, match=f"^{re.escape(f'{path}, line 2: {message}{end}')}$"):
        StepLog(path, 1)
    assert [file.name for file in tmp_path.iterdir()] == ["metrics.jsonl"]
    assert path.read_bytes() == content


def test_a_full_disk_is_named_with_the_file(monkeypatch):
    monkeypatch.setattr(progress, "truncate_lines", lambda path, step: step)  # reading /dev/full never ends
    log = StepLog(epath.Path("/dev/full"), 0)
    log.write({"step": 1})
    with pytest.raises(OSError, match=r"No space left on device: '/dev/full'$"):
        log.flush()
    with pytest.raises(OSError, match=r"No space left on device: '/dev/full'$"):
        log.close()
