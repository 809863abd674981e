"""The size of the house: lines by kind, modules, functions, commands, and definitions that one place uses.

    python benchmarks/house.py             # this checkout
    python benchmarks/house.py DIR DIR     # several checkouts side by side, such as one before a change and one after

A line of code holds a token that is neither a comment nor a docstring; comments beside code count as code. A definition
is a function or class at the top of a module of the package; it is used by a module whose text names it. A command is
a module of the package that can be run. Statements are a function's own, without its docstring and inner functions.
Modules of `studies/` count with the package, so that moving code there makes nothing smaller.
"""

from __future__ import annotations

import argparse
import ast
import collections
import io
import pathlib
import re
import statistics
import tokenize
from collections.abc import Iterator

IGNORED = {tokenize.NL, tokenize.NEWLINE, tokenize.INDENT, tokenize.DEDENT, tokenize.ENCODING, tokenize.ENDMARKER}
Function = ast.FunctionDef | ast.AsyncFunctionDef


def lines_by_kind(text: str) -> collections.Counter[str]:
    """How many lines of a module are code, docstring, comment or blank."""
    documented: set[int] = set()
    for node in ast.walk(ast.parse(text)):
        for first in strings_alone(node):
            documented.update(range(first.lineno, (first.end_lineno or first.lineno) + 1))
    code: set[int] = set()
    comment: set[int] = set()
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        if token.type == tokenize.COMMENT:
            comment.add(token.start[0])
        elif token.type not in IGNORED:
            code.update(range(token.start[0], token.end[0] + 1))
    code -= documented
    count, total = collections.Counter(code=len(code), docstring=len(documented)), len(text.splitlines())
    count["comment"] = len(comment - code - documented)
    count["blank"] = total - sum(count.values())
    return count


def strings_alone(node: ast.AST) -> Iterator[ast.Expr]:
    """Docstrings, and strings that document the assignment before them."""
    for statement in getattr(node, "body", ()) if not isinstance(node, ast.Lambda | ast.IfExp) else ():
        value = statement.value if isinstance(statement, ast.Expr) else None
        if isinstance(value, ast.Constant) and isinstance(value.value, str):
            yield statement


def statements(function: Function) -> int:
    """The statements of a function."""

    def inside(node: ast.AST) -> int:
        nested = [child for child in ast.iter_child_nodes(node) if isinstance(child, ast.stmt | ast.excepthandler)]
        return sum(
            isinstance(child, ast.stmt) + (0 if isinstance(child, Function | ast.ClassDef) else inside(child))
            for child in nested
        )

    return inside(function) - (ast.get_docstring(function) is not None)


def measure(root: pathlib.Path) -> dict[str, object]:
    """The measures of one checkout."""
    folders = (root / "prism_jax", root / "studies")
    package = {path: path.read_text(encoding="utf-8") for folder in folders for path in sorted(folder.rglob("*.py"))}
    tests = [path.read_text(encoding="utf-8") for path in sorted((root / "tests").rglob("*.py"))]
    lines = {"package": collections.Counter(), "tests": collections.Counter()}
    for name, texts in (("package", package.values()), ("tests", tests)):
        for text in texts:
            lines[name] += lines_by_kind(text)
    sizes, users = [], collections.Counter()
    words = {path: collections.Counter(re.findall(r"\w+", text)) for path, text in package.items()}
    used_once = 0
    for path, text in package.items():
        tree = ast.parse(text)
        sizes += [statements(node) for node in ast.walk(tree) if isinstance(node, Function)]
        for node in tree.body:
            if isinstance(node, Function | ast.ClassDef) and node.name != "main":
                uses_elsewhere = sum(node.name in counts for other_path, counts in words.items() if other_path != path)
                users["definitions"] += 1
                used_once += uses_elsewhere == 1 and words[path][node.name] == 1
                users["unused"] += uses_elsewhere == 0 and words[path][node.name] == 1
    total, readme = sum(lines["package"].values()), (root / "README.md").read_text(encoding="utf-8")
    rooms = [path for path in (root / "prism_jax").iterdir() if path.is_dir() and (path / "__init__.py").exists()]
    mains = [path for path, text in package.items() if '__name__ == "__main__"' in text]
    return {
        "package, lines": total,
        "of these in studies/": sum(
            len(text.splitlines()) for path, text in package.items() if folders[1] in path.parents
        ),
        **{f"package, {kind}": lines["package"][kind] for kind in ("code", "docstring", "comment", "blank")},
        "package, docstrings %": round(100 * lines["package"]["docstring"] / total, 1),
        "tests, lines": sum(lines["tests"].values()),
        **{f"tests, {kind}": lines["tests"][kind] for kind in ("code", "docstring", "comment", "blank")},
        "modules": len(package),
        "packages": 1 + sum(path.name == "__init__.py" for path in package) - 1,
        "packages directly below prism_jax/": len(rooms),
        "modules directly below prism_jax/": sum(path.parent.name == "prism_jax" for path in package),
        "modules that run": len(mains),
        "commands in the README": len(set(re.findall(r"python -m prism_jax[\w.]*", readme))),
        "lines of the README": len(readme.splitlines()),
        "pages of docs": len(list((root / "docs").glob("*.md"))),
        "definitions": users["definitions"],
        "definitions that one other module uses": used_once,
        "definitions that no module uses": users["unused"],
        "median of statements per function": statistics.median(sizes),
        "mean of statements per function": round(statistics.mean(sizes), 2),
    }


def main() -> None:
    """Prints the measures of the checkouts named on the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    checkout = pathlib.Path(__file__).parents[1]
    parser.add_argument("checkouts", nargs="*", type=pathlib.Path, default=[checkout], help="this one unless named")
    columns = [measure(folder) for folder in parser.parse_args().checkouts]
    for name in columns[0]:
        print(f"{name:44s}" + "".join(f"{column[name]:>12}" for column in columns))


if __name__ == "__main__":
    main()
