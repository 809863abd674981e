"""Recipes that train, run and evaluate: the paper's questions and ours, each a module with a `main`.

Here lives what ties both halves of the package together for a study; nothing else may import it. A study prints what it
found with intervals and fixes its criteria before it runs.
"""
