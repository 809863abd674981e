"""Evaluation of tables of any size, as four functions: init, add, merge and result.

A *statistic* (in `scan`, `ranks` and `sums`) has a small state: `init()` is that of no rows, `add(state, rows)` of
some more rows with whole steps, `merge(a, b)` of the rows of both, and a result is read from the last one. What runs
them over files, in one process or on many machines, is `prism_jax.runs.sharded`; nothing here knows of files.
Promises and counterfactual costs have statistics of their own (`promising`, `counterfactual`), and so have the paper's
tables (`experiments.paper.in_parts`).

Four statistics follow each other, since each needs numbers of the one before:

1. `scan`: sizes, labels and streams, and histograms of the raw log-odds by label, from which maps are fitted;
2. `Moves` in `ranks`: how far the slow pass moves calibrated log-odds, only where there is a slow pass;
3. `ranks`: histograms of what the policies rank by, from which areas and thresholds follow;
4. `sums`: everything else, exactly: every decision is made on its own row with the fitted maps.

Counts are integers and the same for every division of the rows. Sums of floats differ in their rounding only. A table
in memory is one part. Where all rows fit into memory (`exact`), maps are fitted on the rows themselves and histograms
have a bin for each distinct value, so nothing is rounded; isotonic maps, whose equal values tie in the ranks of
triggers, are the same to the last digit. Else numbers that come from a histogram have an error. `Evaluation.bounds`
bounds it, by the width of the bins, for temperatures, the areas, the CORP decomposition and p_accept alone at the
gate's speak rate; there is no bound for other maps, the thresholds of triggers, and the area of the policy that thinks
by value.

Belongs here: states and their results. Does not belong here: files, processes (`prism_jax.runs`); the formulas and the
policies (`prism_jax.decision`, `prism_jax.evaluation`).
"""
