"""ProactiveBench's scoring of judged JSON files, written down independently and on plain JSON, for the tests."""

NAMES = ("Recall", "Precision", "Accuracy", "False-Alarm", "F1-Score", "Accept Rate")


def judged_as_published(events, verdict):
    """What the judging script adds to a file: [] and null become one silence, then one verdict per prediction."""
    for number, event in enumerate(events):
        if "agent_response" not in event:
            continue
        if not event["agent_response"]:
            event["agent_response"] = [None]
        event["judgement"] = [verdict(number, one) for one in event["agent_response"]]
    return events


def scored_as_published(events):
    """The rates of one list of judged events, with the stabiliser at each denominator, and the four counts."""
    cells = {(proposed, accepted): 0 for proposed in (True, False) for accepted in (True, False)}
    for event in events:
        for one, accepted in zip(event.get("agent_response", ()), event.get("judgement", ()), strict=False):
            cells[one is not None, accepted] += 1
    tp, fp = cells[True, True], cells[True, False]
    tn, fn = cells[False, True], cells[False, False]
    e = 1e-8
    r, p = tp / (tp + fn + e), tp / (tp + fp + e)
    accuracy = (tp + tn) / (tp + tn + fp + fn + e)
    values = (r, p, accuracy, fp / (tp + fp + e), 2 * (p * r) / (p + r + e), tp / (tp + fp + e))
    return dict(zip(NAMES, values, strict=True)), (tp, fp, tn, fn)
