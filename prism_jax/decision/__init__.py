"""The decision layer: pure functions on arrays of scores, labels and costs (see `docs/decision.md`).

Belongs here: the gate and its policies, losses, calibration, metrics, curves and their uncertainty. NumPy inputs give
NumPy outputs; JAX arrays or tracers give JAX arrays.
Does not belong here: anything that depends on a model, a stream, a file or a clock, or imports another folder of this
package. Users import modules: `from prism_jax.decision import gate`.

Where to change what:
- the gate's comparison: `intervene` and `expected_costs` in `gate.py`, and what repeats them (CONTRIBUTING.md)
- a policy, or a new one: its entry of `POLICIES` in `policies.py`, which decisions, sweeps, flags and results tables
  read; its row in docs/maths.md. Limits of an entry (CONTRIBUTING.md)
- what thinking is worth, or how triggers rank steps: `thinking.py`; `TRIGGERS` and `urgency` in `budgets.py`
- intervals, their coverage with few streams: `uncertainty/jackknife.py`, `uncertainty/bootstrap.py`;
  `studies/coverage/intervals.py`
- a risk that can be promised, or a bound: `RISKS` and `_step_losses` in `risk/losses.py`; `BOUNDS` in
  `risk/promises.py`
- the default costs, trigger and policy: `OperatingPoint` in `operating_point.py`
- a calibrator, or a new one: `calibration/calibrators.py`; `maps.py` beside it lists those that evaluation offers:
  the places that a new one changes (CONTRIBUTING.md)
- a loss term, or a new one: its sums in `losses/decision_losses.py`; `Terms`, `TERMS` and `Objective` in
  `prism_jax/training/optimization/objective.py`; its weight and the check of it in
  `prism_jax/training/loss_config.py`; `SHOWN` in `prism_jax/training/logs/progress.py` for the progress bar
- the maps of somebody's own score, and the gate as a rule on it: `score_maps.py`
- the logistic fit behind Platt's maps, the probe and the context head: `logistic.py`
- corrections for judges' errors: `judge_noise.py`
- a metric, or a new one: `Rates` in `metrics.py`; `PolicyRow` in `prism_jax/evaluation/rows.py`, filled in
  `_row` of `prism_jax/evaluation/policy_sums.py`; its column in `prism_jax/report/tables.py`
- what another gate would have cost: estimators, intervals and refusals in `off_policy/`; how logs are read in
  `prism_jax/evaluation/logged_steps.py` and `prism_jax/runs/counterfactual.py`; the estimates of a log as a whole or in
  parts in `prism_jax/evaluation/merged/counterfactual.py`; the proof on redrawn and made logs in
  `studies/coverage/off_policy.py`
- a person's own rate on top of a score: `person.py`
- the alarm for drift: its bets: `SIZES`, `NEAR` and `log_factors` in `alarm.py`
"""
