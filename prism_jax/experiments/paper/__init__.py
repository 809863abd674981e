"""The paper's tables and figures, each a module with a function `make`, started by `python -m prism_jax experiments`.

Belongs here: one module per table (what it computes, and its sheet), the registry of all of them, the paper's printed
numbers, and what they share. A number that another project could want belongs in `prism_jax.decision` or
`prism_jax.evaluation`; no other part of `prism_jax` may import this one.
"""
