"""Whole jobs, from a config to its results: train, score, evaluate and export a run, check a machine.

Lives here: what the mains and the experiments share. A main adds flags and one call.
May not live here: anything that one of the packages below can do alone.
"""
