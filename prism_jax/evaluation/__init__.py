"""What decisions are worth: calibration and evaluation of a scores table, tables and the report.

Lives here: the protocol (which split is for what, which policies stand beside which), its tables, figures and report.
May not live here: models, training, prompts; the formulas themselves (decision), the scores table (scores).
"""
