"""Every study of the checkout by name.

To add one, write `studies/NAME.py` with `define_flags` and `main`, which returns or yields its tables, and a line here.
"""

from prism_jax.experiments.by_name import Entry

STUDIES: dict[str, Entry] = {
    "coverage": Entry(
        "How often intervals cover, promises hold, alarms ring: --of.",
        "seconds to 10 minutes",
        ("of",),
        ("few_units", "overlap", "counterfactual", "promises", "alarms", "recalibration"),
    ),
    "thinking": Entry("What the slow pass is worth, over three seeds.", "12 minutes", ("workdir",)),
    "distillation": Entry("What curation and the teacher's quality are worth.", "20 minutes", ("workdir",)),
    "adapters": Entry(
        "Low-rank adapters beside training all parameters.", "20 minutes; with --weights an hour more", ("workdir",)
    ),
    "training_pathways": Entry("Training pathways, and filter × losses, over three seeds.", "20 minutes", ("workdir",)),
    "need_target": Entry("What both meanings of p_need cost, by population.", "2 hours", ("workdir",)),
    "injections": Entry("How far injected texts move decisions.", "minutes", ("workdir|weights",)),
    "live_context": Entry("How live decisions differ where streams outgrow their context.", "a minute", ("workdir",)),
    "judges": Entry("How far people and public models agree.", "seconds", ("source",)),
    "decision_models": Entry("A threshold of 0.5 on a decision model beside the gate.", "a minute"),
}
