"""`python -m studies.audit_tables` as a user runs it: what it prints and writes, and its exit status."""

import forked


def run(*arguments):
    return forked.run("studies.audit_tables", *arguments)


def test_findings_are_printed_and_written_and_end_with_status_1(tmp_path):
    done = run("docs/paper_tables/main.csv", "--n=233", "--n=227", f"--workdir={tmp_path / 'out'}")
    assert (done.returncode, done.stderr) == (1, "")
    assert "70.03 + 29.70 = 99.73, not 100" in done.stdout
    assert done.stdout.endswith("8 findings and 0 notes in 1 tables\n")
    names = {f"{name}.{kind}" for name in ("columns", "counts", "findings") for kind in ("csv", "md", "tex")}
    assert {path.name for path in (tmp_path / "out").iterdir()} == names
    assert "74.01 + 25.91 = 99.92, not 100" in (tmp_path / "out" / "findings.csv").read_text()


def test_a_consistent_table_ends_with_status_0_and_bad_input_with_2(tmp_path):
    table = tmp_path / "table.csv"
    table.write_text("model,Recall,Precision,N\na,50%,50%,8\n")
    done = run(table)
    assert (done.returncode, done.stdout.splitlines()[-1]) == (0, "0 findings and 0 notes in 1 tables")
    table.write_text("model,Recall\na,many\n")
    bad = run(table)
    assert (bad.returncode, bad.stdout) == (2, "")
    assert (
        bad.stderr == f"error: {table}: row 1, column 'Recall': found 'many', expected a number such as 0.92 or 92.4%\n"
    )
    none = run()
    assert (none.returncode, none.stderr) == (2, "error: found no argument, expected FILE.csv (see --help)\n")
