"""From streams to token ids: the tokenizer, the template with its two slots, and packing.

Contains: the model's input, and the positions in it (slots) at which decisions are read.
May not contain: models, losses, probabilities, costs.
Imports `prism_jax.streams` and `prism_jax.runtime` and nothing else of prism_jax.

Where to change what:
- the template's words: the constants at the top of `template.py`; the system message is `prompt.system` in the
  config. What else to know (CONTRIBUTING.md)
- how streams become rows: `packing.py`, `rows.py`
- what the slow pass writes: `SLOW_FIELDS` in `prism_jax/streams/types.py`; how it is written and read in
  `prism_jax/student/scoring/slow.py`, its grammar in `prism_jax/student/scoring/grammar.py`
- the keys of a response: `RESPONSE_KEYS` in `prism_jax/streams/types.py`; `prism_jax/student/scoring/responses.py`
"""
