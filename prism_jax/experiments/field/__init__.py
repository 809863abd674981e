"""The field on one page: other people's data and baselines that anybody would try, in one table.

    python -m prism_jax experiments field --sources=simulator --workdir=DIR
    python -m prism_jax experiments field --workdir=DIR --weights=GGUF --baselines=constant,tfidf,words,states \
        --sources=contextagent=DIR,proactivebench=DIR,log=FILE,simulator

Per source: AUROC, Brier score and ECE of every baseline, what its decisions cost at four ratios, and the difference to
the better of always and never. Everything is out of fold: by whole streams or people, calibrated on the training part.
Then what the second signal is worth, and what few labels are worth where a baseline was fitted on another source.
Scores are kept in DIR/scores, so that a second call computes tables alone. docs/field.md has the results.

Belongs here: what a baseline and a source are (`interface.py`, `material.py`), the baselines, and the tables over them.
Statistics belong elsewhere: they are those of `evaluation`, `decision` and `experiments.ranking`.

To add a baseline, write a file beside these with a `Baseline`, and list it in `registry.py`. A source is a line of
`prism_jax.streams.published.table`.
"""

from prism_jax.experiments.field.command import define_flags, main

__all__ = ["define_flags", "main"]
