"""Labels unlabelled streams by a remote teacher: probabilities, fields of the slow pass, responses and proposals.

Contains: prompts, the schema of the answers, labelling, importers of what others recorded, the calibrator of texts.
May not contain: HTTP, training, votes of judges.
Imports `prism_jax.remote`, `prompting`, `streams`, `decision` and `runtime`, and nothing else of prism_jax.
"""
