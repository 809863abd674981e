"""A probe: p_need and p_accept from words and from a frozen model's states, without fine-tuning a student.

Belongs here: the features of an offer and of its history, the regressions on them, reading states off a frozen model,
and the files of a saved probe. A probe is trained in about a minute on two processors and writes the same scores table
as a student. It may not import training, evaluation or the report; the recipe that does is
`prism_jax/commands/probing.py`.

Where to change what:
- the words that a probe reads of an offer and its history: `NAMES` in `similarity.py`, `ACTIVITIES`, `OF_HISTORY` and
  `OF_OFFER` in `words.py`, which also says which of them need reads; how far back in `window.py`; live in
  `live_words.py`
- where a probe reads a frozen model: `StatesConfig` in `probe_config.py`; `states.py`, `kept_states.py`
- how a probe is fitted, or its files: `fitting.py`, `logistic.py`; `saved.py`
"""
