"""The study of a log that need not fit into memory, from sums over parts of whole people.

A person's answers follow each other, so rows are divided by person first (`parts`). Then statistics run over the parts,
as those of `prism_jax.evaluation.merged` do over scores (`statistics`), in this order (`study`): what there is; the
scores by label, from which maps are fitted; the likelihood of the person layers, as often as their fits ask; what the
predictions rank by; and the sums of everything else.

Folds, numbers of people and the units of intervals are those of the study in memory. Maps are fitted on histograms, and
AUROC is that of histograms, with a bound from the width of the bins.

Belongs here: statistics of answers, and the way through them. Does not belong here: the formulas, which are those of
the study in memory, and processes (`prism_jax.runs`).
"""
