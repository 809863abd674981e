"""A table of text that renders to the terminal, Markdown, CSV, LaTeX and HTML.

The code that builds a table formats its numbers. Every renderer shows the cells unchanged, escaped for its format.
"""

from __future__ import annotations

import csv
import dataclasses
import io
import re
from collections.abc import Iterable, Sequence

import rich.box
import rich.console
import rich.table
import rich.text

from prism_jax.report.templates import load_template
from prism_jax.runtime.shown_text import visible


@dataclasses.dataclass(frozen=True)
class Column:
    """A column's heading and, in one sentence, what its numbers mean; a column of text is aligned left."""

    label: str
    meaning: str = ""
    unit: str = ""
    text: bool = False

    @property
    def heading(self) -> str:
        """The label with the unit in parentheses."""
        return f"{self.label} ({self.unit})" if self.unit else self.label


@dataclasses.dataclass(frozen=True)
class Row:
    """A row's name, one cell per column, the meaning of the name, and whether the row is emphasised."""

    name: str
    cells: tuple[str, ...]
    meaning: str = ""
    strong: bool = False


@dataclasses.dataclass(frozen=True)
class Section:
    """Rows under one heading; an empty title shows no heading."""

    title: str
    rows: tuple[Row, ...]


@dataclasses.dataclass(frozen=True)
class Table:
    """A table of text.

    Attributes:
      title: Heading of the whole table; may be empty.
      names: Heading of the column of row names; may be empty.
      columns: Headings of the other columns.
      sections: Groups of rows, in the order in which they are shown.
      note: Sentence below the table, for example which data were used; may be empty.
      mark: Meaning of an emphasised ("strong") row, in a word or two.

    Raises:
      ValueError: if the number of cells in a row differs from the number of columns.
    """

    title: str
    names: str
    columns: tuple[Column, ...]
    sections: tuple[Section, ...]
    note: str = ""
    mark: str = "highlighted"

    def __post_init__(self) -> None:
        for section in self.sections:
            for row in section.rows:
                if len(row.cells) != len(self.columns):
                    raise ValueError(
                        f"table {self.title!r}, row {row.name!r}: found {len(row.cells)} cells, "
                        f"expected one for each of the {len(self.columns)} columns"
                    )

    @property
    def headings(self) -> tuple[str, ...]:
        """The headings of all columns; the heading of the row names comes first."""
        return (self.names, *(column.heading for column in self.columns))

    def to_markdown(self) -> str:
        """Renders to GitHub's Markdown: one line per row, cells escaped, line breaks as <br>.

        The title is a bold line above the table and the note a line in italics below it. Section titles are rows in
        italics; strong rows have a bold name.
        """
        width = len(self.headings)
        lines = [_markdown_line(map(_escape_markdown, self.headings)), "|" + "---|" * width]
        for section in self.sections:
            if section.title:
                lines.append(_markdown_line([_marked(section.title, "*"), *[""] * (width - 1)]))
            for row in section.rows:
                name = _marked(row.name, "**") if row.strong else _escape_markdown(row.name)
                lines.append(_markdown_line([name, *map(_escape_markdown, row.cells)]))
        above = [_marked(self.title, "**"), ""] if self.title else []
        below = ["", _marked(self.note, "*")] if self.note else []
        return "\n".join([*above, *lines, *below]) + "\n"

    def encoded(self, stem: str) -> dict[str, bytes]:
        """The table as CSV, Markdown and LaTeX, by the names of the files."""
        rendered = {"csv": self.to_csv(), "md": self.to_markdown(), "tex": self.to_latex()}
        return {f"{stem}.{kind}": text.encode() for kind, text in rendered.items()}

    def to_csv(self) -> str:
        r"""Renders to CSV (RFC 4180); if any section has a title, the first column holds the titles.

        If any row is strong, a last column, whose heading is `mark`, holds "yes" for the strong rows. Title and note
        are left out. Lines end in "\r\n", so open the file to write to with newline="".
        """
        titled = any(section.title for section in self.sections)
        marked = any(row.strong for section in self.sections for row in section.rows)
        file = io.StringIO()
        writer = csv.writer(file)
        writer.writerow(["section"] * titled + [*self.headings] + [self.mark] * marked)
        for section in self.sections:
            for row in section.rows:
                strong = "yes" if row.strong else ""
                writer.writerow([section.title] * titled + [row.name, *row.cells] + [strong] * marked)
        return file.getvalue()

    def to_latex(self) -> str:
        r"""Renders to a LaTeX float with a booktabs tabular; needs \usepackage{booktabs} and UTF-8 input.

        Text is escaped, runs of white space become one space, and other unprintable characters are left out. The title
        becomes the caption and the note a line below the table; strong rows have a bold name.
        """
        lines = [r"\begin{table}", r"\centering"]
        if self.title:
            lines.append(rf"\caption{{{_escape_latex(self.title)}}}")
        aligned = "".join("l" if column.text else "r" for column in self.columns)
        lines += [rf"\begin{{tabular}}{{l{aligned}}}", r"\toprule"]
        lines.append(_latex_line(map(_escape_latex, self.headings)))
        for section in self.sections:
            lines.append(r"\midrule")
            if section.title:
                title = rf"\emph{{{_escape_latex(section.title)}}}"
                lines.append(rf"\multicolumn{{{len(self.headings)}}}{{l}}{{{title}}} \\")
            for row in section.rows:
                name = _escape_latex(row.name)
                name = rf"\textbf{{{name}}}" if row.strong else name
                lines.append(_latex_line([name, *map(_escape_latex, row.cells)]))
        lines += [r"\bottomrule", r"\end{tabular}"]
        if self.note:
            lines.append(rf"\par\smallskip{{\footnotesize {_escape_latex(self.note)}}}")
        return "\n".join([*lines, r"\end{table}"]) + "\n"

    def to_html(self) -> str:
        """Renders to an escaped HTML fragment, the same as in the HTML report; meanings become hover texts."""
        return str(load_template("table.html.jinja").module.sheet(self))  # type: ignore[attr-defined]

    def to_terminal(self) -> rich.table.Table:
        """Renders for rich: headings on two lines, section titles in italics, strong rows bold and marked with ▸."""
        shown = rich.table.Table(
            title=_text(self.title, style="table.title") if self.title else None,
            title_justify="left",
            caption=_text(self.note, style="table.caption") if self.note else None,
            caption_justify="left",
            box=rich.box.SIMPLE_HEAD,
            padding=(0, 1, 0, 0),
            pad_edge=False,
        )
        shown.add_column(_text(self.names), no_wrap=True)
        for column in self.columns:
            shown.add_column(_text(_two_lines(column)), justify="left" if column.text else "right", no_wrap=True)
        for section in self.sections:
            if section.title:
                shown.add_row(_text(section.title, style="italic"))
            for row in section.rows:
                texts = [("▸ " if row.strong else "  ") + row.name, *row.cells]
                shown.add_row(*map(_text, texts), style="bold" if row.strong else None)
            shown.add_section()
        return shown


_WIDTH = 1000
"""Characters of a line that no table fills."""


def _text(text: str, style: str = "") -> rich.text.Text:
    """Plain text for rich, in which a terminal finds nothing to obey."""
    return rich.text.Text(visible(text), style=style)


def wide_console() -> rich.console.Console:
    """Makes a console on standard output, so wide that rich cuts no number; a narrow terminal wraps the lines."""
    return rich.console.Console(width=_WIDTH, emoji=False)


def print_all(tables: Sequence[Table], console: rich.console.Console | None = None) -> None:
    """Prints tables without cutting any cell, with an empty line between two of them; by default on the terminal."""
    console = wide_console() if console is None else console
    for number, table in enumerate(tables):
        if number and tables[number - 1].note:  # without a note, the rows end in an empty line
            console.print()
        console.print(table.to_terminal())


def _two_lines(column: Column) -> str:
    """A column's heading on two lines, its unit on the shorter one."""
    first, _, second = column.label.partition(" ")
    if column.unit and (len(first) < len(second)):
        first = f"{first} {column.unit}"
    elif column.unit:
        second = f"{second} {column.unit}".lstrip()
    return f"{first}\n{second}".strip()


# Characters that Markdown may read as markup: "_" only at the edge of a word, "]" only where a link may follow.
_MARKDOWN = re.compile(r"[\\|*`<&~$]|(?<![^\W_])_|_(?![^\W_])|\](?=[(\[:])")


def _escape_markdown(text: str) -> str:
    """Escapes a text so that Markdown shows it unchanged, on one line of source."""
    return "<br>".join(_MARKDOWN.sub(r"\\\g<0>", line) for line in text.splitlines())


def _marked(text: str, mark: str) -> str:
    """Puts the escaped text between two marks; Markdown ignores marks next to white space, so the text is stripped."""
    escaped = _escape_markdown(text.strip())
    return f"{mark}{escaped}{mark}" if escaped else ""


def _markdown_line(cells: Iterable[str]) -> str:
    return "|" + "".join(f" {cell} |" if cell else " |" for cell in cells)


_LATEX = {
    **{character: rf"\{character}" for character in "{}$&#%_"},
    "\\": r"\textbackslash{}",
    "^": r"\textasciicircum{}",
    "~": r"\textasciitilde{}",
    "<": r"\textless{}",
    ">": r"\textgreater{}",
    "|": r"\textbar{}",
    '"': r"\textquotedbl{}",
    "−": r"\ensuremath{-}",
    "∞": r"\ensuremath{\infty}",
    "×": r"\ensuremath{\times}",
    "²": r"\textsuperscript{2}",
    "–": "--",
    "≤": r"\ensuremath{\leq}",
    "≥": r"\ensuremath{\geq}",
    "±": r"\ensuremath{\pm}",
    "α": r"\ensuremath{\alpha}",
    "δ": r"\ensuremath{\delta}",
    "ε": r"\ensuremath{\varepsilon}",
    "κ": r"\ensuremath{\kappa}",
    "σ": r"\ensuremath{\sigma}",
    "τ": r"\ensuremath{\tau}",
    "▸": r"\ensuremath{\triangleright}",
}


def _escape_latex(text: str) -> str:
    """Escapes a text so that LaTeX shows it unchanged, on one line of source."""
    line = " ".join(text.split())
    return "".join(_LATEX.get(character, character) for character in line if character.isprintable())


def _latex_line(cells: Iterable[str]) -> str:
    """One row. A leading bracket or star is guarded, or LaTeX would read it as an option of the previous line break."""
    line = " & ".join(cells)
    return ("{}" if line.startswith(("[", "*")) else "") + line + r" \\"
