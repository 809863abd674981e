"""Calibration and evaluation of a scores table.

Belongs here: the protocol (which split is used for what), the policies that are compared, and the results' records.
Does not belong here: models, training, prompts; the formulas (`prism_jax.decision`), the scores table
(`prism_jax.scores`), tables and figures (`prism_jax.report`).

Where to change what:
- the table of what the second signal is worth: `second_signal.py`; `second_signal_table` in
  `prism_jax/report/tables.py`
- the comparison of triggers, its budgets and its table: `triggers.py`; `trigger_tables` in
  `prism_jax/report/tables.py` and `trigger_figure` in `prism_jax/report/figures.py`
- the command of promises: its grid in `promises.py`, which units certify in `merged/promising.py`, what rules do to
  them in `promise_units.py`, what it prints in `prism_jax/runs/promising.py`
- counterfactual costs: how a log's steps are read in `logged_steps.py`, the estimates in
  `merged/counterfactual.py`, what is printed in `prism_jax/runs/counterfactual.py`
- the report's sliders: their positions and counts in `surfaces.py`, the page's data in
  `prism_jax/report/controls.py`, the script in `prism_jax/report/controls.js`
- what a table without need leaves out: `need.py`; `EvaluationData.fast_policies` in `policy_rows.py`
- decisions replayed on labels of every offer, and p_accept alone at equal speak rates: `replay.py`; the tables over it
  in `prism_jax/experiments/field/`
"""
