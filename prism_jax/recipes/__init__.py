"""Whole jobs, from a config to its results: train, score, evaluate and export a run, check a machine.

Lives here: jobs that mains and experiments share. A main adds flags and one call.
May not live here: anything that needs only one of the packages below.
"""
