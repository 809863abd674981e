"""What is shown of a table without roles, and that the command that is said evaluates it."""

import csv
import re
import shlex

import numpy as np
import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet as pq
import pytest

from prism_jax.evaluation.answers.columns import LogError, parse_columns
from prism_jax.evaluation.answers.logs import read_log
from prism_jax.report.answers.looking import look, refuse_log
from prism_jax.scores.joining import find_log


def roles_of(path):
    """The roles that are said, with the other arguments."""
    table, (columns, *more) = look(str(path))
    return table, next(csv.reader([columns.removeprefix("--columns=")])), more


def refuse(path, more=()):
    refuse_log(find_log(str(path)), str(path), more)


@pytest.fixture
def table():
    i = np.arange(60)
    return {
        "User ID, hashed": [f"u{n % 5}" for n in i],
        "time since issued": i,
        "shownAt": [f"2025-01-{1 + n % 28:02d} 10:00:00" for n in i],
        "Confidence (%)": (37 * i) % 100,
        "Outcome": np.where(i % 4 == 3, "", np.where(i % 3 == 0, "Accepted", "dismissed")),
        "state": ["hidden" if n % 4 == 3 else "shown" for n in i],
        "note": [f"a text\nof two lines, {n}" for n in i],
    }


def test_roles_are_guessed_from_names_and_values_and_the_log_is_read_by_them(tmp_path, table):
    pa.csv.write_csv(pa.table({**table, "shown": table.pop("state")}), tmp_path / "log.csv")
    shown, roles, more = roles_of(tmp_path / "log.csv")
    assert set(roles) == {
        "person=User ID, hashed",
        "accepted=Outcome==Accepted",
        "time=shownAt",
        "score=Confidence (%)%",
        "logged=shown==shown",
    }
    assert more == ["--shown_only"]  # without propensities, offers that were not made are refused
    rows = {row.name: row.cells for row in shown.sections[0].rows}
    assert rows["Confidence (%)"] == ("number", "0, 37, 74", "score=Confidence (%)%")
    assert rows["note"] == ("text", "a text of two lines,, a text of two lines,, a text of two lines,", "")
    log = read_log(tmp_path / "log.csv", parse_columns(roles), shown_only=True)
    assert (len(log), log.left_out, len(log.names), log.accepted.sum()) == (45, 15, 5, 15)


@pytest.mark.parametrize("rows", [{"rating": [1, 5, 3, 4], "who": list("abab")}, {"took": [True, False] * 2}])
def test_a_rating_gets_a_condition_and_what_is_not_found_is_said(tmp_path, rows):
    pq.write_table(pa.table({**rows, "when": [1.7e12] * 4, "p": [0.1, None, 7.0, 2.0]}), tmp_path / "log.parquet")
    _, roles, more = roles_of(tmp_path / "log.parquet")
    expected = ["person=who", "accepted=rating>=4"] if "who" in rows else ["person=COLUMN", "accepted=took"]
    assert roles == [*expected, "time=when", "score=p"] and not more


def test_the_error_says_a_command_for_the_shell_and_scores_files_are_let_through(tmp_path, table, capsys):
    path = tmp_path / "my log.csv"
    pa.csv.write_csv(pa.table(table), path)
    with pytest.raises(LogError, match=r"found a log of answers without --columns, expected the roles") as refused:
        refuse(tmp_path, ["--workdir=out", "--c_fn=4"])
    command, _, unknown = re.search(r"such as (python .*)$", str(refused.value))[1].partition("; ")
    words = shlex.split(command)
    assert words[:5] == ["python", "-m", "prism_jax", "evaluate", f"--scores={tmp_path}"]
    assert (
        "or of which offers were made: some have no answer, and logged=ANSWER!=null leaves" in unknown
    )  # no column is called so
    assert words[-2:] == ["--workdir=out", "--c_fn=4"] and '"person=User ID, hashed"' in words[5]
    assert "Confidence (%)" in capsys.readouterr().out
    (tmp_path / "log.xlsx").touch()
    pq.write_table(pa.table({"stream": ["a"], "step": [0], "p_accept_fast": [0.5]}), tmp_path / "scores.parquet")
    assert find_log(str(tmp_path / "scores.parquet")) is None
    with pytest.raises(LogError, match=r"log.xlsx: found the suffix '.xlsx', expected .csv or .parquet: save tables"):
        refuse(tmp_path / "log.xlsx")
    assert find_log(str(tmp_path)) is None  # where there are scores files, other tables are none of them
    assert not capsys.readouterr().out


@pytest.mark.parametrize(
    ("changed", "roles", "more"),
    [
        ({"accepted": [True, None] * 4}, ["accepted=accepted", "logged=COLUMN"], ["--shown_only"]),
        ({"shown": [False] * 8}, ["accepted=accepted"], []),  # it is not which offers were made
        (
            {"accepted": [True, None] * 4, "shown": [False, True] * 4},
            ["accepted=accepted", "logged=COLUMN"],
            ["--shown_only"],
        ),
        (
            {"accepted": [True, False, False, False] * 2, "shown": [True, False] * 4, "propensity": [0.5, 1.0] * 4},
            ["accepted=accepted", "logged=shown"],
            ["--shown_only"],
        ),
        ({"accepted": None, "rating": [0.5, 0.8] * 4}, ["accepted=rating>=0.8"], []),
        ({"accepted": None, "took\nit": [True, False] * 4}, ["accepted=took\nit"], []),
        ({"tags": [["a"], None] * 4, "parts": [{"a": 1}] * 8}, ["accepted=accepted"], []),
    ],
)
def test_no_role_is_said_that_the_log_refuses(tmp_path, changed, roles, more):
    columns = {"who": list("abcdabcd"), "accepted": [True, False] * 4} | changed
    pq.write_table(pa.table({name: rows for name, rows in columns.items() if rows}), tmp_path / "log.parquet")
    _, said, others = roles_of(tmp_path / "log.parquet")
    assert (said, others) == (["person=who", *roles], more)
    if "logged=COLUMN" in said:
        with pytest.raises(LogError, match=r"or of which offers were made: some have no answer, and logged=ANSWER"):
            refuse(tmp_path / "log.parquet")
    else:
        read_log(tmp_path / "log.parquet", parse_columns(said), shown_only=bool(others))


def test_dates_of_two_readings_and_percentages_are_said_with_what_reads_them(tmp_path):
    rows = "".join(f"u{i % 3},3/{1 + i % 12}/26,{30 + i}%,{'ny'[i % 2]}\n" for i in range(12))
    (tmp_path / "log.csv").write_text(f"who,when,sure (conf),took\n{rows}")
    shown, roles, more = roles_of(tmp_path / "log.csv")
    assert roles == ["person=who", "accepted=took", "time=when", "score=sure (conf)%"]
    assert more == ["--time_format=FORMAT"]
    kinds = {row.name: row.cells[0] for row in shown.sections[0].rows}
    assert kinds["when"] == "time, day/month or month/day" and kinds["sure (conf)"] == "percentage"
    with pytest.raises(LogError, match=r"--time_format=FORMAT; FORMAT is day/month or month/day, of numbers se"):
        refuse(tmp_path / "log.csv")
    log = read_log(tmp_path / "log.csv", parse_columns(roles, "month/day"))
    assert log.score_is_probability and log.timed


def test_roles_are_guessed_by_content_where_no_name_tells(tmp_path):
    """Which column is the person is not: nothing but a name tells it."""
    rows = ""
    for i in range(12):
        shown, taken = "ja" if i % 3 else "nein", ("ja", "nein")[i % 2] if i % 3 else ""
        rows += f"u{i % 3};{1 + i}.3.2026 9:00;{30 + i},5 %;{shown};{taken};{'xy'[i % 2]}\n"
    (tmp_path / "log.csv").write_text(f"Kundin;Zeitpunkt;Sicherheit;Angezeigt;Angenommen;Fläche\n{rows}")
    _, roles, more = roles_of(tmp_path / "log.csv")
    assert roles == [
        *("person=COLUMN", "accepted=Angenommen==ja", "time=Zeitpunkt", "score=Sicherheit%", "logged=Angezeigt==ja")
    ]
    assert more == ["--shown_only"]
    log = read_log(tmp_path / "log.csv", parse_columns([roles[0].replace("COLUMN", "Kundin"), *roles[1:]]))
    assert log.logged.sum() == 8 and log.score_is_probability and log.timed
    # Of several columns of a kind, none is guessed.
    (tmp_path / "two.csv").write_text("wer,a,b,c\nx,ja,nein,3%\ny,nein,ja,4%\nx,ja,ja,5%\n")
    assert roles_of(tmp_path / "two.csv")[1] == ["person=COLUMN", "accepted=COLUMN", "score=c%"]


def test_days_of_a_spreadsheet_are_a_time_for_which_a_format_is_asked(tmp_path):
    rows = "".join(f"u{i % 3},{46082 + i / 8},{i % 2},{50_000 + i}\n" for i in range(12))
    (tmp_path / "log.csv").write_text(f"who,when,took,salary\n{rows}")
    _, roles, more = roles_of(tmp_path / "log.csv")
    assert roles == ["person=who", "accepted=took", "time=when"] and more == ["--time_format=FORMAT"]
    assert read_log(tmp_path / "log.csv", parse_columns(roles, "days")).time[-1] == (46082 + 11 / 8 - 25569) * 86400


def test_a_column_that_is_there_twice_has_no_role(tmp_path):
    (tmp_path / "log.csv").write_text("who,took,took,used\na,1,0,1\nb,0,1,0\na,0,1,0\n")
    _, said, _ = roles_of(tmp_path / "log.csv")
    assert said == ["person=who", "accepted=used"]
    read_log(tmp_path / "log.csv", parse_columns(said))


@pytest.mark.parametrize("scores", [[20, 59, 104], [-2.0, 0.5, 1.9], [300, 690, 500]])
def test_a_score_beyond_percentages_is_taken_as_it_is(tmp_path, scores):
    columns = {"user": list("aab"), "confidence": scores, "accepted": [True, False, True]}
    pq.write_table(pa.table(columns), tmp_path / "log.parquet")
    assert "score=confidence" in roles_of(tmp_path / "log.parquet")[1]


def test_a_table_of_moments_is_sent_to_the_columns_of_scores_files(tmp_path):
    columns = {"user": list("ab"), "p_need": [0.2, 0.6], "p_accept": [0.1, 0.3], "took": [True, False]}
    pq.write_table(pa.table(columns), tmp_path / "moments.parquet")
    with pytest.raises(LogError, match="a scores file, whose columns are stream, step, p_need_fast, p_accept_fast"):
        refuse(tmp_path / "moments.parquet")


def test_a_few_empty_cells_leave_a_column_its_role(tmp_path, table):
    for name in ("User ID, hashed", "shownAt"):
        table[name] = ["", *table[name][1:]]
    pa.csv.write_csv(pa.table(table), tmp_path / "log.csv")
    roles = roles_of(tmp_path / "log.csv")[1]
    assert {"person=User ID, hashed", "time=shownAt"} <= set(roles)
    named = [role.replace("=COLUMN", "=state==shown") for role in roles]
    with pytest.raises(LogError, match="row 2, column 'User ID, hashed': found nothing"):
        read_log(tmp_path / "log.csv", parse_columns(named), shown_only=True)
