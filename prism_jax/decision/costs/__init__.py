"""What lies behind `decision.surface` and `decision.audbc`, which are the doors to it.

Lives here: sweeps over cost ratios, the exact grid they are counted on, and the curves that come of them.
May not live here: names that users import from here; the two doors hand them on.
"""
