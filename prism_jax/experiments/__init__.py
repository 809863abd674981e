"""Experiments: each answers one question of the paper or of this project, and is a module with a `main`.

Belongs here: code that trains, runs and evaluates for one experiment; no other part may import it. Every experiment
fixes its criteria before it runs and prints its results with intervals.
"""
