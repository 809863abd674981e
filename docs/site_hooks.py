"""Adds to the documentation site what no page in docs/ holds: the pages of the root, the reference of the code, tables.

MkDocs calls these functions (`hooks` in mkdocs.yml). The files in docs/ stay as they are, so that their links also work
where the repository is read.
"""

import csv
import pathlib
import re

from mkdocs.structure.files import File

ROOT = pathlib.Path(__file__).parents[1]
PAGES = {
    "README.md": "overview.md",
    "CONTRIBUTING.md": "contributing.md",
    "CHANGELOG.md": "changelog.md",
    "notebooks/README.md": "notebooks.md",
}
"""Pages outside docs/, and their places on the site."""

DECISION = (
    *(
        "gate",
        "policies",
        "operating_point",
        "passes",
        "surface",
        "thinking",
        "budgets",
        "value_surface",
        "audbc",
        "losses",
    ),
    *("curation", "calibration", "metrics", "judge_noise", "uncertainty", "drift"),
)
REFERENCE = {
    "decision": tuple(f"prism_jax.decision.{name}" for name in DECISION),
    "scores and evaluation": (
        *("prism_jax.scores.files", "prism_jax.scores.table", "prism_jax.evaluation.protocol"),
        *("prism_jax.evaluation.results", "prism_jax.evaluation.rows", "prism_jax.evaluation.fits"),
        *("prism_jax.report.table", "prism_jax.report.tables", "prism_jax.report.page"),
    ),
    "streams": ("prism_jax.streams.types", "prism_jax.streams.jsonl", "prism_jax.streams.simulator_config"),
    "configs": (
        *("prism_jax.training.run_config", "prism_jax.training.loss_config", "prism_jax.training.pathway_config"),
        *("prism_jax.streams.sources", "prism_jax.student.prompting.template", "prism_jax.student.model_config"),
    ),
    "agent": ("prism_jax.agent.agent", "prism_jax.agent.settings", "prism_jax.agent.records"),
    "student": ("prism_jax.student.engine", "prism_jax.student.weights", "prism_jax.student.presets"),
}
"""The modules whose docstrings are pages, by section of the navigation: those that users call."""


def on_config(config):
    """Adds the reference to the navigation."""
    sections = [
        {title.capitalize(): [{name.removeprefix("prism_jax."): f"api/{name}.md"} for name in names]}
        for title, names in REFERENCE.items()
    ]
    config.nav.append({"Reference": sections})
    return config


def on_files(files, config):
    """Adds the pages."""
    for source, place in PAGES.items():
        text = (ROOT / source).read_text(encoding="utf-8")
        files.append(File.generated(config, place, content=_relinked(text, pathlib.PurePosixPath(source).parent)))
    for names in REFERENCE.values():
        for name in names:
            files.append(File.generated(config, f"api/{name}.md", content=f"# {name}\n\n::: {name}\n"))
    return files


def on_page_markdown(markdown, page, **_):
    """Redirects links that leave docs/, and shows the tables whose files a list names."""
    if page.file.src_uri in PAGES.values() or page.file.src_uri.startswith("api/"):
        return markdown
    named = re.compile(r"^- (\[\w+\.csv\]\((\w+/\w+\.csv)\).*\n(?:  .*\n)*)", re.MULTILINE)
    markdown = named.sub(lambda match: f"\n{match[1]}\n{_table(ROOT / 'docs' / match[2])}", markdown)
    return _relinked(markdown, pathlib.PurePosixPath("docs"))


def _table(path):
    """The CSV file of an experiment as Markdown, with the ends of an interval beside the number."""
    with path.open(encoding="utf-8", newline="") as file:
        rows = list(csv.DictReader(file))
    shown = [name for name in rows[0] if not name.endswith(("_low", "_high", "_status"))]
    lines = [shown, ["---"] * len(shown)]
    for row in rows:
        ends = {name: (row.get(f"{name}_low"), row.get(f"{name}_high")) for name in shown}
        lines.append([row[name] + (" [{}, {}]".format(*ends[name]) if ends[name][0] else "") for name in shown])
    return "\n".join(f"| {' | '.join(line)} |" for line in lines) + "\n"


def _relinked(text, folder):
    """A page of `folder` with its links relative to the site: modules lead to their reference, other files nowhere."""

    def replace(match):
        words, target, anchor = match.groups("")
        path = (ROOT / folder / target).resolve().relative_to(ROOT).as_posix()
        if path in PAGES:
            return f"[{words}]({PAGES[path]}{anchor})"
        module = path.removesuffix(".py").removesuffix("/__init__").replace("/", ".")
        if any(module in names for names in REFERENCE.values()):
            return f"[{words}](api/{module}.md)"
        if path.startswith("docs/"):
            return f"[{words}]({path.removeprefix('docs/')}{anchor})"
        return words

    return re.sub(r"\[([^\]]*)\]\((?!https?:|#|mailto:)([^)#\s]+)(#[^)\s]*)?\)", replace, text)
