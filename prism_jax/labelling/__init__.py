"""Labels by other models: of a teacher on unlabelled streams (`teacher`), of judges on offers (`judges`).

Belongs here: prompts, the schemas of answers, labelling, panels, votes, simulated teachers and judges.
Does not belong here: HTTP (`prism_jax.remote`), a student, training.
"""
