"""Every study of the checkout by name.

To add one, write `studies/NAME.py` with `define_flags` and `main`, which returns or yields its tables, and a line here.
"""

from prism_jax.experiments.by_name import Study

STUDIES: dict[str, Study] = {
    "coverage": Study(
        "How often intervals cover, promises hold, alarms ring: --of.",
        "seconds to 10 minutes",
        ("of",),
        ("few_units", "overlap", "counterfactual", "promises", "alarms", "recalibration"),
    ),
    "thinking": Study("What the slow pass is worth, over three seeds.", "12 minutes", ("workdir",)),
    "distillation": Study("What curation and the teacher's quality are worth.", "20 minutes", ("workdir",)),
    "adapters": Study(
        "Low-rank adapters beside training all parameters.", "20 minutes; with --weights an hour more", ("workdir",)
    ),
    "training_pathways": Study("Training pathways, and filter × losses, over three seeds.", "20 minutes", ("workdir",)),
    "need_target": Study("What both meanings of p_need cost, by population.", "2 hours", ("workdir",)),
    "injections": Study("How far injected texts move decisions.", "minutes", ("workdir|weights",)),
    "live_context": Study("How live decisions differ where streams outgrow their context.", "a minute", ("workdir",)),
    "judges": Study("How far people and public models agree.", "seconds", ("source",)),
    "decision_models": Study("A threshold of 0.5 on a decision model beside the gate.", "a minute"),
}
