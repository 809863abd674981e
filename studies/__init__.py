"""Studies: programs of a checkout that the package does not need, and that may import all of it.

    python -m studies NAME --help
    python -m studies.audit_tables --help

Belongs here: what answers a question of its own, such as whether printed tables are possible. The package may not
import them. Every study fixes its criteria before it runs and prints its results with intervals. The audit of printed
tables has a command of its own: it takes files, and its exit status says whether it found something.

Where to change what:
- a study, or a new one: a module or folder here with `define_flags` and `main`, and its line in `registry.py`
- intervals, promises and alarms, and the logs of which their truth is known: `coverage/`
- what the studies that train share, variants, seeds, costs and means over seeds: `runner.py`; a study of them declares
  its variants and tables in its own module
- the injections, their controls, or the measurement: `injection_strings.py`, `injections.py`; docs/agent.md
"""
