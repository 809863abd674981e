"""The quantities that a column may hold, and the headings under which papers print them."""

from __future__ import annotations

import re

RATIOS: dict[str, tuple[tuple[int, int, int, int], tuple[int, int, int, int]]] = {
    "recall": ((1, 0, 0, 0), (1, 0, 1, 0)),
    "precision": ((1, 0, 0, 0), (1, 1, 0, 0)),
    "accept rate": ((1, 0, 0, 0), (1, 1, 0, 0)),
    "false alarm": ((0, 1, 0, 0), (1, 1, 0, 0)),
    "accuracy": ((1, 0, 0, 1), (1, 1, 1, 1)),
    "F1": ((2, 0, 0, 0), (2, 1, 1, 0)),
    "false positive rate": ((0, 1, 0, 0), (0, 1, 0, 1)),
    "specificity": ((0, 0, 0, 1), (0, 1, 0, 1)),
    "missed": ((0, 0, 1, 0), (1, 0, 1, 0)),
    "negative predictive value": ((0, 0, 0, 1), (0, 0, 1, 1)),
    "speak rate": ((1, 1, 0, 0), (1, 1, 1, 1)),
    "share of positives": ((1, 0, 1, 0), (1, 1, 1, 1)),
    "false alarms per step": ((0, 1, 0, 0), (1, 1, 1, 1)),
}
"""Rates of a confusion as numerator and denominator: how often TP, FP, FN and TN count in each."""
SHORT = {
    "recall": "R",
    "precision": "P",
    "false alarm": "FA",
    "accuracy": "Acc",
    "false positive rate": "FPR",
    "negative predictive value": "NPV",
}
COUNTS = ("TP", "FP", "FN", "TN")
WHOLE = ("N", *COUNTS)
COEFFICIENTS = ("kappa", "MCC")
"""Agreement coefficients: no ratio of counts, in [-1, 1] and never percentages."""
SHARES = ("AUDBC", "slow rate", "flip rate", "ECE", "Brier")
"""Other numbers from 0 to 1, which may be printed as percentages."""
PAIRED = ("baseline", "ours", "difference", "low", "high")
"""Two values, their difference and the ends of its interval, all on one scale."""
TEXTS = ("setting",)

_HEADINGS = {
    "recall": "recall rec r tpr sensitivity truepositiverate hitrate",
    "precision": "precision prec pre p ppv",
    "accept rate": "acceptrate acceptancerate",
    "false alarm": "falsealarm falsealarmrate fa far fdr falsediscoveryrate",
    "accuracy": "accuracy acc agreement agreementrate rawagreement",
    "F1": "f1 f1score fscore fmeasure",
    "false positive rate": "fpr falsepositiverate fallout",
    "specificity": "specificity tnr spec truenegativerate",
    "missed": "missed missedneed fnr falsenegativerate missrate",
    "negative predictive value": "npv negativepredictivevalue",
    "speak rate": "speakrate speak interventionrate offerrate burden",
    "share of positives": "prevalence positives shareofpositives baserate gold",
    "false alarms per step": "falsealarmsperstep fpperstep",
    "AUDBC": "audbc",
    "slow rate": "slow slowrate",
    "flip rate": "flip flips fliprate",
    "ECE": "ece",
    "Brier": "brier brierscore",
    "N": "n events totalevents steps support decisions total",
    "tokens": "tokens",
    "latency": "latency lat latp95 latms latencyms",
    "temperature": "t temperature",
    "bias": "ε epsilon eps bias",
    "p-value": "pvalue pval",
    "kappa": "kappa cohenskappa κ cohensκ cohenkappa",
    "MCC": "mcc matthews matthewscorrelation",
    "baseline": "baseline from before",
    "ours": "ours to after",
    "difference": "difference diff delta imp improvement gain δ change",
    "low": "low lower cilow",
    "high": "high upper cihigh",
    "setting": "setting samesetting",
    **{count: count.lower() for count in COUNTS},
}
_QUANTITY = {heading: quantity for quantity, headings in _HEADINGS.items() for heading in headings.split()}


def quantity_of(heading: str, false_alarm: str = "discovery") -> str | None:
    """The quantity that a column's heading names, or None; case, spaces, arrows, units and punctuation do not matter.

    A "false-alarm" column holds "discovery", FP/(TP+FP) as in the paper, or "positive", FP/(FP+TN).
    """
    plain = re.sub(r"\([^)]*\)", "", heading.lower()) if "(" in heading else heading.lower()
    quantity = _QUANTITY.get("".join(character for character in plain if character.isalnum()))
    return "false positive rate" if quantity == "false alarm" and false_alarm == "positive" else quantity


def may_be_percentage(quantity: str) -> bool:
    """Whether a column of this quantity may be printed as percentages."""
    return quantity in RATIOS or quantity in SHARES or quantity in PAIRED
