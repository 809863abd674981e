"""How far people, and what public models did, agree with people's votes on ProactiveBench; no endpoint is asked.

    python -m studies judges --source=DIR

DIR has the layout of ProactiveBench's repository. It holds no verdicts of language models as judges. What can be
compared with people's majority: each annotator with the majority of the others, and models that stayed silent or made
an offer, read as a verdict on silence. A model that acts was not asked what a judge is asked, so its rows are a
reference for judges and no measurement of them.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple

from absl import flags
from etils import epath

from prism_jax.labelling.judges.agreements import ALL_BUT, HUMAN, Agreements, compare_judges
from prism_jax.labelling.judges.ballots import Ballots, Item, PanelConfig, human_ballots, majority, make_ballots
from prism_jax.report.judges import agreement_tables
from prism_jax.report.table import Table
from prism_jax.streams import Step, Stream
from prism_jax.streams.proactivebench import load
from prism_jax.streams.published.recorded import OFFER, Recording, read_recordings

NAMED = ("gpt-4o", "claude-3-5-sonnet", "llama3-70b")
"""The recorded models that the paper's panels of judges name; one of them in an older version."""
PRESENT = PanelConfig(missing="majority_of_present")


class Judged(NamedTuple):
    """What one model did at one judged step."""

    stream: str
    model: str
    step: Step  # the judged step
    spoke: bool  # whether it made an offer


def match(streams: Sequence[Stream], recordings: Sequence[Recording]) -> list[Judged]:
    """Pairs answers with the judged step of the same stream and event.

    The texts of a stream differ between its versions. An event counts as the same if its text occurs once in both.
    """
    judged = {stream.id: stream for stream in streams}
    pairs = []
    for recording in recordings:
        if (stream := judged.get(recording.stream.id)) is None:
            continue
        texts = [event.text for event in stream.events]
        own = [event.text for event in recording.stream.events]
        steps = {texts[step.event]: step for step in stream.steps if texts.count(texts[step.event]) == 1}
        for answer in recording.answers:
            step = steps.get(own[answer.event]) if own.count(own[answer.event]) == 1 else None
            if step is not None and step.y_need is not None:
                pairs.append(Judged(stream.id, answer.model, step, answer.texts[OFFER] is not None))
    return pairs


def acts(rows: Sequence[Judged], models: Sequence[str]) -> Ballots:
    """What models did at the judged steps, as verdicts on silence: a model that made an offer rejects it.

    The models are in the order of the columns.
    """
    verdicts: dict[Item, list[bool | None]] = {}
    for row in rows:
        if row.model in models:
            item = Item(row.stream, row.step.event, silence=True)
            verdicts.setdefault(item, [None] * len(models))[models.index(row.model)] = not row.spoke
    return make_ballots(verdicts, models)


def models_table(rows: Sequence[Judged], people: Ballots, resamples: int) -> tuple[Table, ...]:
    """Agreement of recorded models, and of their majorities, with people on silence."""
    everyone = sorted({row.model for row in rows})
    all_models = majority(acts(rows, everyone), PRESENT)
    panels = {
        "three models": acts(rows, NAMED),
        f"all {len(everyone)} models": Ballots(all_models.items, ("majority",), all_models.verdicts),
    }
    agreement = compare_judges(panels, people, config=PRESENT, resamples=resamples)
    pairs = tuple(row for row in agreement.pairs if row.reference == HUMAN)
    return agreement_tables(agreement._replace(pairs=pairs))


def annotators_table(people: Ballots, resamples: int) -> tuple[Table, ...]:
    """Each annotator against the majority of the others, who do not include them; no table without a pair."""
    pairs = compare_judges({}, people, resamples=resamples).pairs
    return agreement_tables(Agreements(tuple(row for row in pairs if row.reference.startswith(ALL_BUT)), ()))


def define_flags() -> None:
    """Defines the command-line flags."""
    flags.DEFINE_string("source", None, "Folder with the layout of ProactiveBench's repository.", required=True)
    flags.DEFINE_integer("resamples", 10_000, "Bootstrap resamples of streams.", lower_bound=1)


def main() -> Iterable[Table]:
    """Compares people and public models."""
    options, source = flags.FLAGS, epath.Path(flags.FLAGS.source)
    streams = load(source)
    people = human_ballots(streams)
    rows = match(streams, read_recordings(source / "eval" / "traces_new")[0])
    return [*annotators_table(people, options.resamples), *models_table(rows, people, options.resamples)]
