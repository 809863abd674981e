"""The table's renderers, read back by parsers of their formats, whatever text the cells hold."""

import csv
import html.parser
import io
import re

import hypothesis.strategies as st
import pytest
import rich.console
from hypothesis import given

from prism_jax.report.table import Column, Row, Section, Table, print_all
from prism_jax.runtime.shown_text import visible

# Text of all kinds, with the characters that some format gives a meaning more often than by chance.
TEXT = st.text(max_size=12) | st.text(alphabet="|\\\n\r&%$#_{}~^<>\"',*[]`−∞ab 1-\u2028", max_size=12)


@st.composite
def tables(draw):
    """Tables of up to three columns and three sections of up to three rows."""
    columns = tuple(Column(*draw(st.tuples(TEXT, TEXT, TEXT))) for _ in range(draw(st.integers(0, 3))))

    def row():
        return Row(draw(TEXT), tuple(draw(TEXT) for _ in columns), draw(TEXT), draw(st.booleans()))

    sections = (
        Section(draw(TEXT), tuple(row() for _ in range(draw(st.integers(0, 3)))))
        for _ in range(draw(st.integers(0, 3)))
    )
    return Table(draw(TEXT), draw(TEXT), columns, tuple(sections), draw(TEXT), draw(TEXT))


def rows_of(table):
    return [row for section in table.sections for row in section.rows]


EXAMPLE = Table(
    "Costs of 50 %",
    "policy",
    (Column("realised cost", "Mean cost."), Column("gap closed", "Share that is saved.", "%")),
    (
        Section("References", (Row("never", ("0.4000", "–"), "Stays silent."),)),
        Section("Raw", (Row("need_only", ("−0.1", "12.5"), "", True), Row("a|b & c", ("∞", "[0, 1]")))),
    ),
    note="On 3 < 4 streams.",
    mark="deployed",
)


def test_a_row_with_too_few_cells_is_refused():
    with pytest.raises(ValueError, match=r"table 't', row 'r': found 1 cells, expected one for each of the 2 columns"):
        Table("t", "", (Column("a"), Column("b")), (Section("", (Row("r", ("1",)),)),))


# Markdown


def test_markdown_of_an_example():
    assert EXAMPLE.to_markdown() == (
        "**Costs of 50 %**\n"
        "\n"
        "| policy | realised cost | gap closed (%) |\n"
        "|---|---|---|\n"
        "| *References* | | |\n"
        "| never | 0.4000 | – |\n"
        "| *Raw* | | |\n"
        "| **need_only** | −0.1 | 12.5 |\n"
        "| a\\|b \\& c | ∞ | [0, 1] |\n"
        "\n"
        "*On 3 \\< 4 streams.*\n"
    )


@given(tables())
def test_markdown_has_one_line_per_row_and_the_same_columns_on_each(table):
    lines = table.to_markdown().splitlines()
    lines = lines[2:] if table.title else lines
    titles = sum(bool(section.title) for section in table.sections)
    count = 2 + titles + len(rows_of(table))
    assert len(lines) == count + 2 * bool(table.note)
    for line in lines[:count]:
        borders = re.sub(r"\\.", "", line).count("|")  # a backslash takes the meaning from what follows it
        assert borders == len(table.columns) + 2
        assert line.startswith("|") and line.endswith("|") and not line.endswith(r"\|")


@given(TEXT.filter(str.strip))
def test_markdown_cells_are_shown_as_they_are(text):
    """What an escaped cell shows: backslashes before punctuation go, and <br> is a line break."""
    line = Table("", "", (Column("c"),), (Section("", (Row("r", (text,)),)),)).to_markdown().splitlines()[2]
    cell = line.removeprefix("| r |").removesuffix("|").removeprefix(" ").removesuffix(" ")
    assert not set("*`~$<&|") & set(re.sub(r"\\.|<br>", "", cell))
    shown = re.sub(r"\\(.)|<br>", lambda found: found[1] or "\n", cell)
    assert shown == "\n".join(text.splitlines())


# CSV


def test_csv_of_an_example():
    assert EXAMPLE.to_csv() == (
        "section,policy,realised cost,gap closed (%),deployed\r\n"
        "References,never,0.4000,–,\r\n"
        "Raw,need_only,−0.1,12.5,yes\r\n"
        'Raw,a|b & c,∞,"[0, 1]",\r\n'
    )


@given(tables())
def test_csv_reads_back_as_the_cells(table):
    heading, *lines = csv.reader(io.StringIO(table.to_csv(), newline=""))
    titled, marked = any(s.title for s in table.sections), any(row.strong for row in rows_of(table))
    last = len(heading) - marked
    assert heading[titled:last] == list(table.headings)
    assert [line[titled:last] for line in lines] == [[row.name, *row.cells] for row in rows_of(table)]
    if titled:
        assert [line[0] for line in lines] == [section.title for section in table.sections for _ in section.rows]
    if marked:
        assert heading[-1] == table.mark
        assert [line[-1] for line in lines] == ["yes" if row.strong else "" for row in rows_of(table)]


# LaTeX


def test_latex_of_an_example():
    assert EXAMPLE.to_latex().splitlines() == [
        r"\begin{table}",
        r"\centering",
        r"\caption{Costs of 50 \%}",
        r"\begin{tabular}{lrr}",
        r"\toprule",
        r"policy & realised cost & gap closed (\%) \\",
        r"\midrule",
        r"\multicolumn{3}{l}{\emph{References}} \\",
        r"never & 0.4000 & -- \\",
        r"\midrule",
        r"\multicolumn{3}{l}{\emph{Raw}} \\",
        r"\textbf{need\_only} & \ensuremath{-}0.1 & 12.5 \\",
        r"a\textbar{}b \& c & \ensuremath{\infty} & [0, 1] \\",
        r"\bottomrule",
        r"\end{tabular}",
        r"\par\smallskip{\footnotesize On 3 \textless{} 4 streams.}",
        r"\end{table}",
    ]


COMMANDS = (
    *("begin", "end", "centering", "caption", "toprule", "midrule", "bottomrule", "multicolumn", "emph", "textbf"),
    *("par", "smallskip", "footnotesize", "textbackslash", "textasciicircum", "textasciitilde", "textless"),
    *("textgreater", "textbar", "textquotedbl", "ensuremath", "infty", "times", "textsuperscript"),
    *("leq", "geq", "pm", "alpha", "delta", "varepsilon", "kappa", "sigma", "tau", "triangleright"),
)


@given(tables())
def test_latex_rows_are_balanced_and_no_special_character_is_left(table):
    source = table.to_latex()
    assert all(character.isprintable() for line in source.split("\n") for character in line)
    body = source[source.index(r"\toprule") : source.index(r"\bottomrule")].splitlines()
    titles = [line for line in body if line.startswith(r"\multicolumn")]
    rows = [line for line in body if line.endswith(r"\\") and line not in titles]
    assert len(titles) == sum(bool(section.title) for section in table.sections)
    assert len(rows) == 1 + len(rows_of(table))
    for row in rows:
        assert len(re.findall(r"(?<!\\)&", row.removesuffix(r"\\"))) == len(table.columns)
        assert not row.startswith(("[", "*"))  # the line before ends in \\, which would take them for its own
    bare = re.sub(rf"\\({'|'.join(COMMANDS)})(?![a-zA-Z])|\\\\(?=\n)|\\[{{}}$&#%_]", "", source)
    assert "\\" not in bare
    assert not set("$#%_^~") & set(bare)
    depth = 0
    for character in bare:
        depth += {"{": 1, "}": -1}.get(character, 0)
        assert depth >= 0
    assert depth == 0


# HTML


class Texts(html.parser.HTMLParser):
    """The text of each cell and caption, and the hover texts."""

    def __init__(self, source):
        super().__init__()
        self.inside, self.cells, self.hovers = [], [], []
        self.feed(source)
        self.close()
        assert self.inside == []

    def handle_starttag(self, tag, attributes):
        assert tag in {"div", "table", "caption", "thead", "tbody", "tr", "th", "td", "small", "p", "bdi"}
        self.inside.append(tag)
        if tag in ("th", "td", "caption", "p"):
            self.cells.append("")
        self.hovers += [value for name, value in attributes if name == "title"]

    def handle_endtag(self, tag):
        assert self.inside.pop() == tag

    def handle_data(self, data):
        if {"th", "td", "caption", "p"} & set(self.inside):
            self.cells[-1] += data


@given(tables())
def test_html_holds_the_texts(table):
    page = Texts(table.to_html())
    expected = [table.title] if table.title else []
    expected += [table.names, *(column.label + (f" {column.unit}" if column.unit else "") for column in table.columns)]
    for section in table.sections:
        expected += [section.title] if section.title else []
        for row in section.rows:
            expected += [row.name + (f" ({table.mark})" if row.strong else ""), *row.cells]
    expected += [table.note] if table.note else []
    assert page.cells == list(map(visible, expected))
    assert page.hovers == [
        *(visible(column.meaning) for column in table.columns if column.meaning),
        *(visible(row.meaning) for row in rows_of(table) if row.meaning),
    ]


# Terminal


def test_the_terminal_shows_markup_as_text_and_cuts_nothing(capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "20")
    row = Row("[bold]name[/]", ("[red]0.5[/red] :smile:", "0.1 [0.05, 0.15]"), strong=True)
    print_all([Table("[i]title", "", (Column("a b"), Column("c", unit="%")), (Section("[i]part", (row,)),))])
    text = capsys.readouterr().out
    for shown in ("[i]title", "[i]part", "▸ [bold]name[/]", *row.cells):
        assert shown in text


def test_an_empty_line_stands_between_two_tables_alone(capsys):
    columns, sections = (Column("a"),), (Section("", (Row("x", ("1",)),)),)
    print_all([Table("one", "", columns, sections, "note"), Table("two", "", columns, sections)])
    lines = [line.strip() for line in capsys.readouterr().out.splitlines()]
    assert lines[0] == "one" and lines[lines.index("note") :][:3] == ["note", "", "two"]
    print_all([Table("one", "", columns, sections), Table("two", "", columns, sections)])
    lines = [line.strip() for line in capsys.readouterr().out.splitlines()]
    assert lines[lines.index("two") - 2 :][:2] == ["x  1", ""]


@given(tables())
def test_the_terminal_takes_any_text(table):
    console = rich.console.Console(file=io.StringIO(), width=400)
    console.print(table.to_terminal())
    assert len(console.file.getvalue().splitlines()) >= len(rows_of(table))
