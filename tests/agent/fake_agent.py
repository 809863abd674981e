"""Runs `prism_jax.agent` as a user does, on the fake reader: `python tests/agent/fake_agent.py --model=DIR ...`.

Options of its own stand first: `slow=SECONDS` makes every batch take that long, `modules=FILE` lists what was loaded.
"""

import json
import pathlib
import sys
import time

sys.path.insert(0, str(pathlib.Path(__file__).parent))

from fake_reader import FakeReader

from prism_jax.agent import __main__ as agent
from prism_jax.agent import loading
from prism_jax.runtime import command

options = {}
while len(sys.argv) > 1 and not sys.argv[1].startswith("-"):
    name, value = sys.argv.pop(1).split("=")
    options[name] = value


class Slow(FakeReader):
    def observe(self, items):
        time.sleep(float(options.get("slow", 0)))
        return super().observe(items)


def main():
    try:
        agent.main()
    finally:
        if "modules" in options:
            pathlib.Path(options["modules"]).write_text(json.dumps(sorted(sys.modules)))


if __name__ == "__main__":
    loading.load_reader = lambda folder, exported, **options: Slow(exported.has_slow_pass)
    agent.define_flags()
    command.start(main)
