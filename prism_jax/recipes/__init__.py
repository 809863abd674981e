"""Whole jobs, from a config to its results: train, score, evaluate and export a run, check a machine.

Belongs here: jobs that mains and experiments share. A main adds flags and one call.
Does not belong here: anything that needs only one of the packages below.
"""
