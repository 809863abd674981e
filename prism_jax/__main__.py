"""The commands of the package, by name: `python -m prism_jax` lists them, `python -m prism_jax NAME ...` runs one."""

from __future__ import annotations

import difflib
import runpy
import signal
import sys

from prism_jax import __version__

COMMANDS = {
    "train": "trains a student (or resumes), calibrates it, evaluates it, and writes a report",
    "evaluate": "calibrates and evaluates a run, the scores of any agent, or a log of answers to offers",
    "score": "scores many streams with an exported student, in shards, and resumes where it was",
    "export": "writes a run as a plain causal language model, which transformers and serving engines read",
    "agent": "decides on live streams with an exported model",
    "serve": "answers over HTTP: an agent with its state, or a model to clients of /v1/decisions",
    "calibrate": "fits a gate to the engine, decision model or export that serves, from labels",
    "import": "makes streams of what others have published or recorded",
    "label": "labels streams by a teacher, or prompts a model as ProactiveBench's agent",
    "judge": "asks a panel of models what the user would have accepted",
    "curate": "keeps the rows on which teacher and judges agree best, to train on",
    "probe": "fits need and acceptance on words or on a frozen model's states, without fine-tuning",
    "promise": "finds the gates that keep a limit on false alarms or missed help for new people",
    "counterfactual": "says what another gate would have cost, from the log of the one that ran",
    "state": "shows, moves and deletes what an agent or a server has of streams and people",
    "official_scores": "scores traces as ProactiveBench does, or writes what an agent or a teacher did as traces",
    "report": "compares several runs on one page",
    "experiments": "computes the paper's tables and runs our studies",
}
"""What each command does."""
OF_THE_PACKAGE = ("agent", "experiments")
"""The commands that are modules of the package; others are in commands/."""


def listing() -> str:
    """The commands, a line each."""
    lines = [f"  {name:22s}{what}" for name, what in COMMANDS.items()]
    where = "Results go into the folder --workdir; a command that makes one file has --out in its place."
    return "\n".join(
        ["usage: python -m prism_jax COMMAND [--flags]", "", *lines, "", "COMMAND --help shows how. " + where]
    )


def main(arguments: list[str]) -> int:
    """Runs the command that the first argument names, or lists all."""
    if not arguments or arguments[0] in ("help", "--help", "-h"):
        signal.signal(signal.SIGPIPE, signal.SIG_DFL)  # a reader such as `head` may end before the list
        print(listing())
        return 0
    if arguments[0] == "--version":
        print(__version__)
        return 0
    name = arguments[0]
    if name not in COMMANDS:
        near = difflib.get_close_matches(name, COMMANDS, n=1)
        hint = f"did you mean {near[0]!r}? " if near else ""
        print(
            f"error: command: found {name!r}, expected one of {', '.join(COMMANDS)}; "
            f"{hint}`python -m prism_jax` says what each does",
            file=sys.stderr,
        )
        return 1
    sys.argv = [f"prism_jax {name}", *arguments[1:]]
    module = f"prism_jax.{name}" if name in OF_THE_PACKAGE else f"prism_jax.commands.{name}"
    runpy.run_module(module, run_name="__main__", alter_sys=True)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
