"""Reading a CSV: headings, scales, and one-line errors that name row and column."""

import pytest

from studies.audit_tables.paired import check_paired
from studies.audit_tables.reading import TableError, read_table


def read(tmp_path, text, **options):
    path = tmp_path / "table.csv"
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    return read_table(str(path), **options)


def test_usual_headings_are_understood_and_others_are_listed(tmp_path):
    sheet = read(tmp_path, "Model,Recall ↑,Pre (%),False-Alarm,F1-Score,Hue,Total Events\na,0.9,81.5,20%,0.85,red,9\n")
    assert sheet.columns == (
        ("Recall ↑", "recall", False),
        ("Pre (%)", "precision", True),
        ("False-Alarm", "false alarm", True),
        ("F1-Score", "F1", False),
        ("Total Events", "N", False),
    )
    assert sheet.ignored == ("Hue",)
    (row,) = sheet.rows
    assert (row.name, row.steps, float(row.cells["precision"].value)) == ("a", 9, 0.815)


def test_columns_without_signs_have_one_scale(tmp_path):
    sheet = read(tmp_path, "m,R,FA\na,98.9,0.5\nb,97.2,0.9\n")
    assert [percent for _, _, percent in sheet.columns] == [True, True]
    assert float(sheet.rows[0].cells["false alarm"].value) == 0.005
    sheet = read(tmp_path, "m,R,FA\na,0.989,0.5\n")
    assert [percent for _, _, percent in sheet.columns] == [False, False]


def test_a_brier_score_is_a_share_beside_percentages_without_signs(tmp_path):
    sheet = read(tmp_path, "m,Acc,ECE,Brier\na,85.1,5.2,0.11\n")
    assert [percent for _, _, percent in sheet.columns] == [True, True, False]


def test_differences_are_on_the_scale_of_what_they_compare(tmp_path):
    sheet = read(tmp_path, "metric,Baseline,Ours,Diff,Low,High\nrecall,98.1,98.9,0.8,-0.2,1.8\n")
    assert {percent for _, _, percent in sheet.columns} == {True}


def test_false_alarm_may_be_the_false_positive_rate(tmp_path):
    sheet = read(tmp_path, "m,FA\na,20%\n", false_alarm="positive")
    assert sheet.columns[0][1] == "false positive rate"


BAD = {
    "": "expected headings and at least one row",
    "\n": "expected headings and at least one row",
    "m,R\n": "expected headings and at least one row",
    "m,R\na,b\n": "row 1, column 'R': found 'b', expected a number such as 0.92 or 92.4%",
    "m,R\na,1,2\n": "row 1: found 3 cells, expected 2",
    "m,Colour\na,red\n": "found no known column",
    "m,R,Recall\na,1,2\n": "found the columns 'R' and 'Recall', expected one of recall",
    "m,R,N\na,0.5,2.5\n": "row 1, column 'N': found '2.5', expected a whole number from 0",
    "m,R,N\na,0.5,0\n": "row 1, column 'N': found '0', expected a number of decisions from 1 to 1000000",
    "m,R,TP\na,0.5,-1\n": "row 1, column 'TP': found '-1', expected a whole number from 0",
    b"m,R\na,\xff\n": "found no CSV in UTF-8",
    'm,R\na,"0.5\n': "found no CSV in UTF-8",
}


@pytest.mark.parametrize("text", BAD)
def test_a_bad_table_is_one_line(tmp_path, text):
    with pytest.raises(TableError) as caught:
        read(tmp_path, text)
    assert "\n" not in str(caught.value)
    assert str(caught.value).startswith(str(tmp_path / "table.csv"))
    assert BAD[text] in str(caught.value)


def test_a_missing_file_is_named(tmp_path):
    with pytest.raises((OSError, ValueError), match=r"none\.csv"):
        read_table(str(tmp_path / "none.csv"))


@pytest.mark.parametrize(("printed", "count"), [("0.8", 0), ("-0.8", 1), ("1.8", 1)])
def test_a_difference_has_the_sign_and_the_size_of_what_it_compares(tmp_path, printed, count):
    found = check_paired(read(tmp_path, f"metric,Baseline,Ours,Diff\nrecall,98.1,98.9,{printed}\n"), None)
    assert len(found) == count
