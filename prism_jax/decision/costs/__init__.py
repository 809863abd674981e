"""Implementation of `decision.surface` and `decision.audbc`, through which its public names are imported.

Belongs here: sweeps over cost ratios, the exact grid on which they are counted, and the curves computed from them.
Does not belong here: names that users import from this package; the two modules above export them.
"""
