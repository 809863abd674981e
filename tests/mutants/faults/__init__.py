"""Seeded faults (mutants): small mistakes that a tired person could commit, each of which some fast test must notice.

`run.py` beside this folder applies them one by one to a copy of the package. A fault that no test notices shows a test
that is missing. The list goes through the package room by room; `vital` marks faults in costs, the gate, calibration,
slots and masks.
"""

from faults.agent import AGENT, PEOPLE, SERVED
from faults.decision import GATE, LOSSES, SURFACES
from faults.evaluation import EVALUATION, SCORES, STREAMS
from faults.fault import Fault
from faults.measures import CALIBRATION, INTERVALS, PROMISES
from faults.remote import REMOTE, RUNTIME, TEACHER_AND_JUDGES
from faults.runs import EXPERIMENTS, RUNS, TABLES
from faults.state import STATE
from faults.student import PROMPTING, STUDENT
from faults.training import PROBE, TRAINING

__all__ = ["FAULTS", "Fault"]

FAULTS = (
    *(*GATE, *SURFACES, *LOSSES, *CALIBRATION, *INTERVALS, *PROMISES, *EVALUATION, *SCORES, *STREAMS, *PROMPTING),
    *(
        *STUDENT,
        *TRAINING,
        *AGENT,
        *SERVED,
        *PEOPLE,
        *PROBE,
        *REMOTE,
        *RUNTIME,
        *TEACHER_AND_JUDGES,
        *TABLES,
        *RUNS,
    ),
    *(*EXPERIMENTS, *STATE),
)
