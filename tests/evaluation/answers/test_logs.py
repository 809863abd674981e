"""Acceptance logs: every role of a column, both formats, and what is refused."""

import re

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from prism_jax.evaluation.answers.columns import LogColumns, LogError, parse_columns
from prism_jax.evaluation.answers.logs import read_log
from prism_jax.evaluation.answers.parts import Divided, divide

HEADER = "who,at,took,rating,score,slow,kind,left\n"
ROWS = (
    "007,20.5,yes,5,0.7,true,code,3\n"
    "7,10,no,1,,false,mail,\n"
    "7,10,true,4,0.2,,,-1e3\n"
    '"Ann, B.",2,0,2,0.4,true,"co\nde",NA\n'
)
COLUMNS = LogColumns(person="who", time="at", accepted="took", score="score")


@pytest.fixture
def write(tmp_path):
    def write(text, name="log.csv"):
        (tmp_path / name).write_text(text, encoding="utf-8")
        return tmp_path / name

    return write


def test_a_csv_file_of_every_kind_of_column(write):
    log = read_log(write(HEADER + ROWS), COLUMNS, ["slow", "kind", "left"])
    assert log.names == ("007", "7", "Ann, B.")
    np.testing.assert_array_equal(log.person, [0, 1, 1, 2])
    np.testing.assert_array_equal(log.accepted, [1, 0, 1, 0])
    np.testing.assert_array_equal(log.time, [20.5, 10, 10, 2])
    np.testing.assert_array_equal(log.score, [0.7, np.nan, 0.2, 0.4])
    np.testing.assert_array_equal(log.order, [0, 1, 2, 3])
    slow, kind, left = log.context
    assert [column.kind for column in log.context] == ["flag", "category", "number"]
    np.testing.assert_array_equal(slow.values, [1, 0, np.nan, 1])
    assert kind.levels == ("co\nde", "code", "mail")
    np.testing.assert_array_equal(kind.values, [1, 2, -1, 0])
    np.testing.assert_array_equal(left.values, [3, np.nan, -1e3, np.nan])
    assert log.logged.all() and log.score_is_probability
    assert "Ann" not in repr(log) + repr(log.context)


def test_parquet_gives_the_same_with_types_of_its_own(tmp_path):
    moments = pa.array([20_500, 10_000, 10_000, 2_000], pa.timestamp("ms", "Europe/Paris"))
    table = {"who": pa.array(["b", "a", "a", "c"]).dictionary_encode(), "at": moments}
    table |= {
        "rating": pa.array([5, 1, 4, 2], pa.int8()),
        "made": [True, True, True, False],
        "e": [0.5, 1.0, 1.0, None],
    }
    pq.write_table(pa.table(table), tmp_path / "log.parquet")
    columns = parse_columns("person=who, time=at, accepted=rating>=4, logged=made, propensity=e")
    log = read_log(tmp_path / "log.parquet", columns, ["rating"][:0])
    np.testing.assert_array_equal(log.person, [1, 0, 0, 2])
    np.testing.assert_array_equal(log.accepted, [1, 0, 1, np.nan])
    np.testing.assert_array_equal(log.time, [20.5, 10, 10, 2])
    np.testing.assert_array_equal(log.propensity, [0.5, 1, 1, np.nan])
    np.testing.assert_array_equal(log.order, [1, 2, 0, 3])


def test_without_times_the_order_of_the_file_counts(write):
    log = read_log(write("p,a\nx,1\ny,0\nx,0\n"), LogColumns(person="p", accepted="a"))
    assert not log.timed
    np.testing.assert_array_equal(log.order, [0, 2, 1])


def test_times_of_text_and_rows_out_of_order(write, caplog):
    text = "p,a,t\nx,1,2025-01-02T00:00:01Z\nx,0,2025-01-02T01:00:00+01:00\ny,1,2025-01-01T00:00:00Z\n"
    log = read_log(write(text), LogColumns(person="p", accepted="a", time="t"))
    np.testing.assert_array_equal(log.time - log.time[2], [86401, 86400, 0])
    np.testing.assert_array_equal(log.order, [1, 0, 2])
    assert "1 rows have an earlier time" in caplog.text
    naive = read_log(write(text.replace("+01:00", "").replace("Z", "")), LogColumns(person="p", accepted="a", time="t"))
    np.testing.assert_array_equal(naive.time - naive.time[2], [86401, 90000, 0])


def test_a_condition_on_a_text_takes_blanks_and_case_for_one_text_and_says_what_is_rejected(write, caplog):
    text = "p,o\nx,taken \ny,TAKEN\nx,left\ny,\u200btaken\nx, Left\ny,ignored\n"
    log = read_log(write(text), LogColumns(person="p", accepted="o== Taken"))
    np.testing.assert_array_equal(log.accepted, [1, 1, 0, 1, 0, 0])
    assert "counted as rejected: 'Left' (1 rows), 'ignored' (1 rows), 'left' (1 rows)" in caplog.text
    table = {"p": ["x", "y", "x"], "o": [True, False, True]}
    pq.write_table(pa.table(table), write("", "flags.parquet"))
    flags = read_log(write("", "log.csv").with_name("flags.parquet"), LogColumns(person="p", accepted="o==True"))
    np.testing.assert_array_equal(flags.accepted, [1, 0, 1])


@pytest.mark.parametrize(
    ("names", "people"),
    [
        (["7", "7.0", "8", "7.00"], ("7", "8")),
        (["zo\u00eb", "zoe\u0308", "zo\u00eb ", "ann"], ("ann", "zo\u00eb")),
        (["ann", "ann\u200b", "\ufeffann", "\u00a0ann\u200d ", "bob"], ("ann", "bob")),
        (["007", "7", "7.5", "1.0.0"], ("007", "1.0.0", "7", "7.5")),
    ],
)
def test_one_person_is_one_person(names, people, write):
    rows = [f"{name},{i % 2}" for i, name in enumerate([*names, *names[::-1]])]
    path = write("\n".join(["p,a", *rows, f"{names[0]},1", f"{names[-1]},0"]))
    columns = LogColumns(person="p", accepted="a")
    assert read_log(path, columns).names == people


def test_people_whose_names_look_alike_are_named(write, caplog):
    read_log(write("p,a\nAnn,1\nbob,0\nann,1\n7,0\n07,0\n"), LogColumns(person="p", accepted="a"))
    assert "4 names of people look like another's" in caplog.text
    assert (
        "different people, first 'Ann' and 'ann'; give each person one name" in caplog.text and "bob" not in caplog.text
    )


def test_bad_rows_are_named_together(write):
    columns = LogColumns(person="p", accepted="a", score="s")
    path = write("p,a,s\n" + "".join(f"ann,{i % 2},{'high' if i % 3 else i}\n" for i in range(12)))
    with pytest.raises(LogError, match=r"row 3, column 's': found a text of 4 .*; 7 more such rows: 4, 6, 7, 9, …$"):
        read_log(path, columns)
    with pytest.raises(LogError, match=r"row 3, column 'a': found 2, expected true.*; 1 more such row: 5$"):
        read_log(write("p,a,s\nann,1,1\nann,2,1\nann,0,1\nann,3,1\n"), columns)


@pytest.mark.parametrize("word", ["nan", "NULL", "None", " n/a", "<NA>", "-", "#N/A", "\\N"])
def test_a_word_for_a_missing_value_is_no_person(word, write):
    with pytest.raises(LogError, match=r"row 3, column 'p': found nothing, expected a name or number of the person"):
        read_log(write(f"p,a\nx,1\n{word},0\ny,0\n"), LogColumns(person="p", accepted="a"))


def times(write, texts, time_format=None):
    """What is read of a column of times."""
    rows = "".join(f'x{i},{i % 2},"{text}"\n' for i, text in enumerate(texts))
    return read_log(write(f"p,a,t\n{rows}"), LogColumns("p", "a", time="t", time_format=time_format)).time


@pytest.mark.parametrize(
    ("texts", "expected"),
    [
        (["3", "1790000000000"], r"row 2, column 't': found 3, expected milliseconds since 1970, as on other rows"),
        (["1790000000000", "0"], r"row 3, column 't': found 0, expected milliseconds since 1970, as on other rows"),
        (["3", "1e21"], r"row 3, column 't': found 1e\+21, expected seconds, or milli-"),
        (["20261127", "20261130", "20261201"], r"row 2, .* found 20261127, expected .*; dates have marks between day"),
        (["20261127090000", "20261127090500", "20261130100000"], r"row 2, .* found 20261127090000, expected .*; dates"),
    ],
)
def test_numbers_that_are_no_times_are_refused(texts, expected, write):
    with pytest.raises(LogError, match=expected):
        times(write, texts)


@pytest.mark.parametrize(("digits", "rtol"), [("", 0), ("000", 0), ("000000", 0), ("000000000", 1e-15)])
def test_counts_of_milliseconds_and_less_are_seconds(digits, rtol, write):
    seconds = [1790000000, 1790000060]
    np.testing.assert_allclose(times(write, [f"{second}{digits}" for second in seconds]), seconds, rtol=rtol)
    np.testing.assert_array_equal(times(write, ["20261127", "20261130", "9"]), [20261127, 20261130, 9])


def test_days_of_a_spreadsheet_are_seconds_only_where_that_is_said(write):
    """46082.5 is noon of 2026-03-01, or a moment before one in the afternoon of the first day."""
    both = r"row 2, column 't': found 46082\.5, which is seconds or, as spreadsheets count days, 2026-03-01 12:00, "
    with pytest.raises(LogError, match=both + "expected --time_format=seconds or --time_format=days"):
        times(write, ["46082.5", "46083.25"])
    np.testing.assert_array_equal(times(write, ["46082.5", "46083.25"], "seconds"), [46082.5, 46083.25])
    noon = times(write, ["2026-03-01 12:00", "2026-03-02 06:00"])
    np.testing.assert_allclose(times(write, ["46082.5", "46083.25"], "days"), noon, rtol=0, atol=1e-4)
    np.testing.assert_array_equal(times(write, ["46082", "90000"]), [46082, 90000])
    with pytest.raises(LogError, match=r"row 3, .* found 1790000000, expected days as spreadsheets count them"):
        times(write, ["46082", "1790000000"], "days")
    with pytest.raises(LogError, match="which is 3 Apr or 4 Mar"):  # no order of day and month is said
        times(write, ["3/4/26", "5/4/26"], "seconds")


FORMS = [
    "2026-03-14 14:05:00",
    "2026-03-14T14:05",
    "14.3.2026 14:05",
    "14/3/26, 14:05:00.0",
    "3/14/2026 2:05 pm",
    "3-14-2026 at 2:05p.m.",
    "2026/3/14 2:05\u202fPM",
    "Sat, Mar 14, 2026 2:05:00 PM",
    "14 March 2026 14:05",
    "14th Mar. 2026 14:05",
    "14-Mar-26 14:05:00,000",
    "Sat, 14 Mar 2026 14:05:00",
]


@pytest.mark.parametrize("text", [*FORMS, *(f"{form}{zone}" for form in FORMS for zone in (" GMT", "+0000", "Z"))])
def test_times_are_read_as_people_write_them(text, write):
    np.testing.assert_array_equal(times(write, [text, text, "NA", text][:2]), [1773497100] * 2)


def test_the_column_says_which_of_two_readings_its_dates_have_or_the_user(write):
    hour = 3600.0
    np.testing.assert_array_equal(
        np.diff(times(write, ["3/4/2026 2 pm", "3/14/2026 12 am"])), [10 * 24 * hour - 14 * hour]
    )
    np.testing.assert_array_equal(
        np.diff(times(write, ["3/4/2026 2 pm", "14/4/2026 12 pm"])), [11 * 24 * hour - 2 * hour]
    )
    both = r"row 3, column 't': found 3/4/26, which is 3 Apr or 4 Mar, expected --time_format=day/month or .*: no "
    with pytest.raises(LogError, match=both):
        times(write, ["4/4/26", "3/4/26"])
    april, march = (times(write, ["4/4/26", "3/4/26"], order) for order in ("day/month", "month/day"))
    assert april[0] == march[0] and april[1] - march[1] == 30 * 24 * hour
    for texts in (
        ["3/14/2026", "14/3/2026"],
        ["3/14/2026", "30/2/2026"],
        ["1.3.2026 14", "1.2.2026"],
        ["Foo 3, 2026"] * 2,
    ):
        with pytest.raises(LogError, match=r"column 't': found a text of \d+ characters, expected seconds, or milli"):
            times(write, texts)


@pytest.mark.parametrize("unit", ["s", "ms", "us", "ns"])
def test_legal_parquet_of_other_writers_is_read(unit, tmp_path):
    seconds = np.array([1_790_000_000, 1_790_000_060, 1_790_000_120])
    counts = seconds * {"s": 1, "ms": 10**3, "us": 10**6, "ns": 10**9}[unit] + (123 if unit == "ns" else 0)
    table = {
        "t": pa.array(counts, pa.timestamp(unit, "UTC")),
        "p": pa.array(["x", "y", "x"]).cast(pa.string_view() if unit == "ns" else pa.large_string()),
        "o": pa.array(["taken", "left", "left"]).cast(pa.string_view()),
        "k": pa.array(["a", "b", "a"]).cast(pa.large_string()).dictionary_encode(),
    }
    pq.write_table(pa.table(table), tmp_path / "log.parquet")
    columns = LogColumns(person="p", accepted="o==taken", time="t")
    log = read_log(tmp_path / "log.parquet", columns, ["k"])
    np.testing.assert_allclose(log.time, seconds, atol=1e-6, rtol=0)
    assert log.names == ("x", "y") and log.context[0].levels == ("a", "b")


@pytest.mark.parametrize("end", ["\n", "\r\n"])
def test_a_header_may_have_line_breaks_in_quotes(end, write):
    path = write(f'who,"taken{end}(0/1)",b"c{end}x,1,2{end}"y{end}z",0,3{end}', "header.csv")
    for name in ("taken", f"taken{end}(0/1)", "taken>=1"):
        columns = LogColumns(person="who", accepted=name, score='b"c')
        np.testing.assert_array_equal(read_log(path, columns).accepted, [1, 0])
    path = write(f'"who{end}(id)", taken ,"s{end}one","s{end}two"{end}x,1,2,3{end}y,0,3,1{end}', "header.csv")
    columns = LogColumns(person="who", accepted="taken")
    assert read_log(path, columns).names == ("x", "y")
    of_device = write(f'who,taken,"kind{end}(of device)"{end}x,1,a{end}y,0,b{end}', "context.csv")
    assert len(read_log(of_device, columns, ("kind",)).context) == 1
    with pytest.raises(LogError, match="found no column 's'"):
        read_log(path, LogColumns(person="who", accepted="taken", score="s"))
    with pytest.raises(LogError, match="found no column 'token'") as error:
        read_log(path, LogColumns(person="who", accepted="token"))
    assert "\n" not in str(error.value)


@pytest.mark.parametrize(
    ("stated", "off"), [("right", 0), ("one third", 1), ("a constant", 1), ("what was done", 1), ("a little low", 0.5)]
)
def test_propensities_that_the_offers_contradict_are_refused_or_said_in_titles(stated, off, tmp_path, monkeypatch):
    rng = np.random.default_rng(3)
    score, made = rng.random(40_000), rng.random(40_000)
    e = 0.1 + 0.8 * score
    made = made < e
    all_stated = {"right": e, "one third": 1 / 3, "a constant": made.mean(), "a little low": e * 0.96}
    e = np.broadcast_to(all_stated.get(stated, np.where(made, e, 1 - e)), made.shape)
    answers = pa.array(rng.random(40_000) < score, mask=~made)
    table = {"p": rng.integers(0, 50, 40_000), "made": made, "e": e, "took": answers, "s": score}
    pq.write_table(pa.table(table), tmp_path / "log.parquet")
    columns = LogColumns(person="p", accepted="took", logged="made", propensity="e", score="s")
    monkeypatch.setattr("prism_jax.evaluation.answers.log_files.CHUNK_ROWS", 9_000)
    log = read_log(tmp_path / "log.parquet", columns)
    for doubts in (
        lambda: Divided.of_log(log).doubted,
        lambda: divide("log", [str(tmp_path / "log.parquet")], columns, tmp_path / "parts", number=1).doubted,
    ):
        if off == 1:
            with pytest.raises(LogError, match=r"found .* to be .*, expected 1: offers were not drawn with these prob"):
                doubts()
        else:
            assert doubts() == (off == 0.5)


def test_a_propensity_of_1_where_no_offer_was_made_is_refused(write):
    text = "p,made,e,took\nx,1,0.7,1\ny,1,1,0\nx,0,0.3,\ny,0,1,\n"
    says = r"row 5, column 'e': found 1 where no offer was made, expected the probability of an offer on silent rows"
    with pytest.raises(LogError, match=says):
        read_log(write(text), parse_columns("person=p,accepted=took,logged=made,propensity=e"))


SAYS = {
    "columns": [
        ("person=who", "found no accepted, expected accepted=COLUMN"),
        ("person=who,accepted", "found 'accepted', expected ROLE=COLUMN"),
        ("person=who,accepted=took,scores=score", "found the role 'scores' (did you mean 'score'?)"),
        ("person=who,accepted=took,accepted=rating", "found accepted twice"),
        ("person=who,accepted=who", "found the column 'who' as person and as accepted"),
        ("person=who,accepted=took,time=", "found no name for time"),
        ("person=who,accepted=token", "found no column 'token' (did you mean 'took'?), expected one of who, at"),
        ("person=who,accepted=rating", "row 2, column 'rating': found 5, expected true or false"),
        ("person=who,accepted=kind", "row 2, column 'kind': found a text of 4 characters, expected true or false"),
        ("person=who,accepted=rating==nothing", "found no row with the text 'nothing'"),
        ("person=who,accepted=kind>=mail", "expected a number to compare with"),
        ("person=who,accepted=rating>=9", "found 4 answers that all rejected the offer, expected both kinds"),
        ("person=who,accepted=took,time=kind", "row 2, column 'kind': found a text of 4 characters, expected seconds"),
        ("person=kind,accepted=took", "row 4, column 'kind': found nothing, expected a name or number of the person"),
        ("person=who,accepted=slow", "row 4, column 'slow': found nothing, expected an answer to the offer; logged="),
        ("person=who,accepted=took,answered=at", "found answered without time"),
        ("person=who,accepted=took,time=at,answered=rating", "row 2, column 'rating': found an answer 15.5 s before"),
        ("person=who,accepted=took,propensity=rating", "row 2, column 'rating': found 5, expected a probability"),
        ("person=who,accepted=took,logged=slow", "row 4, column 'slow': found nothing, expected whether the offer was"),
    ],
    "context": [
        (["size"], "found no column 'size'"),
        (["kind", "kind"], "found the column 'kind' twice"),
        (["took"], "found 'took', the column of accepted, expected what was known before"),
    ],
    "file": [
        ("", "found no header"),
        (HEADER, "found no rows"),
        (HEADER + ROWS + "Zoe,1,2\n", "row 6: found 3 values, expected 8"),
        (HEADER + ROWS + 'Zoe,1,"2\n', "found "),
        (HEADER.replace("at", "who") + ROWS, "found 2 columns called 'who'"),
        (HEADER + ROWS.replace("20.5", "inf"), "row 2, column 'at': found an infinite number, expected seconds"),
        (HEADER + ROWS.replace("20.5", ""), "row 2, column 'at': found nothing, expected the time of the offer"),
        (HEADER + ROWS.replace("0.7", "1e400"), "row 2, column 'score': found an infinite number"),
        (HEADER + ROWS.replace("0.7", "1_7"), "'score': found a text of 3 characters, expected a number"),
        (HEADER + ROWS.replace("0.7", "-1e300"), "'score': found -1e+300, expected a number from -1e+100 to 1e+100"),
        (HEADER + "7,1,1,1,1,1,a,1\n7,2,0,1,1,1,a,1\n", "found answers of 1 person, expected at least 2"),
    ],
}


@pytest.mark.parametrize(("what", "given", "says"), [(what, *pair) for what, pairs in SAYS.items() for pair in pairs])
def test_what_is_refused_is_named_in_one_line(what, given, says, write):
    path = write(given if what == "file" else HEADER + ROWS)
    with pytest.raises(LogError, match=re.escape(says)) as error:
        columns = parse_columns(given) if what == "columns" else COLUMNS
        read_log(path, columns, given if what == "context" else ())
    message = str(error.value)
    assert "\n" not in message
    assert message.startswith((str(path), "columns: ", "context: "))
    assert not re.search(r"Ann|Zoe|007|mail,", message)


def test_other_files_are_refused(tmp_path, write):
    with pytest.raises(FileNotFoundError, match=r": no such file, expected an acceptance log"):
        read_log(tmp_path / "log.csv", COLUMNS)
    with pytest.raises(LogError, match=r"found the suffix '.xlsx', expected .csv or .parquet"):
        read_log(write("", "log.xlsx"), COLUMNS)
    with pytest.raises(LogError, match=r"found no readable Parquet"):
        read_log(write("who", "log.parquet"), COLUMNS)


@pytest.mark.parametrize("mark", [";", "\t"])
def test_semicolons_and_tabs_separate_columns_and_commas_then_stand_in_numbers(mark, write):
    text = 'who;took;sure;"a, b"\n"Ann, B.";yes;0,7;1\nbob;no;;2\nbob;yes;-,25;3\n'.replace(";", mark)
    log = read_log(write(text), LogColumns("who", "took", score="sure"))
    assert log.names == ("Ann, B.", "bob")
    np.testing.assert_array_equal(log.score, [0.7, np.nan, -0.25])


def test_offers_and_answers_have_a_time_zone_or_neither_has(tmp_path, write):
    columns = parse_columns("person=p,accepted=took,time=at,answered=later")
    zoned, local = ["2026-03-01T09:00:00+02:00"] * 2, ["2026-03-01T09:05:00"] * 2
    says = "row 2, column 'later': found times without a time zone, expected one on all times of the log or on none"
    rows = "".join(f"{p},{took},{at},{later}\n" for p, took, at, later in zip("xy", "10", zoned, local, strict=True))
    with pytest.raises(LogError, match=says):
        read_log(write(f"p,took,at,later\n{rows}"), columns)
    moments = {
        "at": pa.array([0, 0], pa.timestamp("s", "Europe/Berlin")),
        "later": pa.array([None, 300], pa.timestamp("s")),
    }
    pq.write_table(pa.table({"p": ["x", "y"], "took": [1, 0], **moments}), tmp_path / "log.parquet")
    with pytest.raises(LogError, match=says.replace("2", "1")):
        read_log(tmp_path / "log.parquet", columns)


def test_a_percentage_is_a_probability(write, caplog):
    columns = LogColumns("who", "took", score="sure%")
    for numbers in ("59,7.5,", "59%,7.5 %,NA"):
        a, b, c = numbers.split(",")
        log = read_log(write(f"who,took,sure\na,1,{a}\nb,0,{b}\nb,0,{c}\n"), columns)
        np.testing.assert_array_equal(log.score, [0.59, 0.075, np.nan])
    assert "no percentage is above 1" not in caplog.text
    with pytest.raises(LogError, match=r"row 3, column 'sure': found 101, expected a percentage from 0 to 100"):
        read_log(write("who,took,sure\na,1,1\nb,0,101\n"), columns)
    with pytest.raises(LogError, match=r"expected a number; score=COLUMN% reads percentages"):
        read_log(write("who,took,sure\na,1,1%\nb,0,2%\n"), LogColumns("who", "took", score="sure"))
    read_log(write("who,took,sure%\na,1,.3\nb,0,.4\n"), columns)
    assert "no percentage is above 1; if these are probabilities, take the % from the role" in caplog.text


def test_conditions_say_no_as_well(write):
    text = "who,what,seen\na,Taken,yes\nb,left,yes\nb,,hidden\na,later,yes\n"
    log = read_log(write(text), parse_columns("person=who,accepted=what!=left,logged=seen!=hidden"), shown_only=True)
    assert log.accepted.tolist() == [1, 0, 1] and log.left_out == 1
    log = read_log(write(text), parse_columns("person=who,accepted=what!=left,logged=what!=null"), shown_only=True)
    assert log.accepted.tolist() == [1, 0, 1]
    with pytest.raises(LogError, match=r"row 4, .* such as logged=what!=null, and --shown_only leaves out the others"):
        read_log(write(text), parse_columns("person=who,accepted=what!=left"))
    with pytest.raises(LogError, match=r"found no column 'what=left' \(did you mean 'what==left'\?\)"):
        read_log(write(text), parse_columns("person=who,accepted=what=left"))


def test_files_and_tables_beyond_the_limits_are_refused(write, monkeypatch):
    path = write(HEADER + ROWS)
    monkeypatch.setattr("prism_jax.evaluation.answers.log_files.MOST_ROWS", 3)
    with pytest.raises(LogError, match="found more than 3 rows, expected at most 3"):
        read_log(path, COLUMNS)
    monkeypatch.setattr("prism_jax.evaluation.answers.log_files.MOST_BYTES", 9)
    with pytest.raises(LogError, match="found a file of more than 9 bytes"):
        read_log(path, COLUMNS)


def test_free_text_is_no_context_but_numbers_as_texts_are(write):
    rows = [f"p{i % 3},{i % 2},note {i},{i / 7},{i % 9}" for i in range(60)]
    path = write("\n".join(["who,took,note,left,kind", *rows]))
    columns = LogColumns(person="who", accepted="took")
    assert [one.kind for one in read_log(path, columns, ["left", "kind"]).context] == ["number", "number"]
    with pytest.raises(LogError, match=r"column 'note': found texts of 60 kinds on 60 rows, expected at most 30: free"):
        read_log(path, columns, ["note"])
    few = write("\n".join(["who,took,note,left,kind", *rows[:20]]), "few.csv")
    assert len(read_log(few, columns, ["note"]).context[0].levels) == 20
