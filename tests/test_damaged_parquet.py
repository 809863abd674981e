import pytest

from prism_jax.scores import Scores, ScoresError, read_scores, write_scores


def test_a_damaged_parquet_file_gives_one_line_with_its_place(tmp_path):
    path = tmp_path / "scores.parquet"
    row = {"step": 0, "p_need_fast": 0.25, "p_accept_fast": 0.5}
    write_scores(path, Scores.from_rows({"stream": f"s{i}", **row} for i in range(50)))
    data = bytearray(path.read_bytes())
    data[4:60] = b"\xff" * 56  # the first page's header
    path.write_bytes(data)
    with pytest.raises(ScoresError, match=rf"^{path}: found no readable Parquet \(.*\)$"):
        read_scores(path)
