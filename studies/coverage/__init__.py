"""Draws from what is known, estimates, and counts: how often intervals cover, promises hold and alarms ring.

    python -m studies coverage --of=few_units         # intervals of few streams
    python -m studies coverage --of=overlap           # which made logs counterfactual costs refuse
    python -m studies coverage --of=counterfactual --log=FILE --columns=person=..,accepted=..,score=..
    python -m studies coverage --of=promises --log=FILE --columns=person=..,accepted=..,score=..
    python -m studies coverage --of=promises --source=PROACTIVEBENCH [--data_dir=DIR]
    python -m studies coverage --of=alarms [--log=FILE --columns=person=..,time=..,accepted=..]
    python -m studies coverage --of=recalibration [--log=FILE --columns=person=..,time=..,accepted=..]

docs/maths.md, counterfactual.md, promises.md and personal_agent.md have the results. Belongs here: what is drawn
(`drawing.py`), the loop that counts (`counting.py`), and a module for each estimator with its table.
"""

from studies.coverage.command import define_flags, main

__all__ = ["define_flags", "main"]
