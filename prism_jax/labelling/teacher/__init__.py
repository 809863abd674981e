"""Labels unlabelled streams by a remote teacher: probabilities, fields of the slow pass, responses and proposals.

Contains: prompts, the schema of the answers, labelling, the calibrator of texts.
May not contain: HTTP, training, votes of judges.
Imports `prism_jax.remote`, `streams`, `decision` and `runtime`, and nothing else of prism_jax.

Where to change what:
- what a teacher is asked, and what its answers become: `prompts.py`; `labelling.py`
- which texts the text calibrator reads, and how it is applied: `text_calibrator.py`; its fit: `text_fit.py`
"""
