"""An exported student, whose passes are timed on streams of one's own; its calibration and costs are the export's."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Mapping
from typing import Any

from etils import epath

from prism_jax.agent.exported import Exported, read_exported
from prism_jax.agent.loading import exported_model, load_student, writing_of
from prism_jax.evaluation.fits import Calibration, SignalFit
from prism_jax.evaluation.policy_rows import EvaluationData, whole_of
from prism_jax.evaluation.splits import evaluated_rows
from prism_jax.experiments.paper.study import IntervalSettings, Study
from prism_jax.experiments.paper.timing import Timing, measure, timing_of
from prism_jax.runtime import digests
from prism_jax.runtime.files import read_object
from prism_jax.scores import Scores, ScoresError
from prism_jax.scores.joining import read_all
from prism_jax.streams.jsonl import read_streams
from prism_jax.student.prompting.template import WritingConfig
from prism_jax.student.scoring.passes import Passes, score_passes
from prism_jax.student.scoring.student import Student
from prism_jax.training.pathway_config import Method

_BATCH = 16
"""Streams per forward pass, where they are scored."""


@dataclasses.dataclass(frozen=True)
class Model:
    """An exported student, or the workdir of a run, and the file of streams."""

    folder: str
    streams: str
    costs: Mapping[str, Any] = dataclasses.field(default_factory=dict)  # those that take the place of the export's

    @functools.cached_property
    def facts(self) -> dict[str, Any]:
        """What was timed, and the export's operating point."""
        exported = self._loaded[0]
        point = dataclasses.asdict(dataclasses.replace(exported.point, **self.costs))
        said = {"model": self.folder, "digest": exported.fingerprints["model"], "point": point}
        return {**said, "streams": self.streams, "sha256": digests.sha256(self.streams)}

    @functools.cached_property
    def _loaded(self) -> tuple[Exported, Student, WritingConfig, int]:
        """What `prism.json` says, the student, what it may write, and its context in tokens."""
        with exported_model(self.folder) as folder:
            exported = read_exported(folder)
            if exported.is_probe:
                raise ValueError(f"{self.folder}: found a probe, expected an exported student")
            digests.check_folder(folder, exported.fingerprints["model"])
            context = read_object(folder / "tokenizer_config.json", digests.EXPORT).get("model_max_length")
            if type(context) is not int:
                raise ValueError(f"{self.folder}: model_max_length: found {context!r:.80}, expected tokens")
            return exported, load_student(folder, exported, "float32"), writing_of(folder, exported), context

    @functools.cached_property
    def timing(self) -> Timing:
        """The seconds of its live passes at every step of the streams."""
        exported, student, writing, context = self._loaded
        streams = read_streams(self.streams)
        return timing_of(measure(student, streams, writing, context, slow=exported.has_slow_pass))

    @functools.cached_property
    def _scores(self) -> Scores:
        """Both passes' signals at every step of the streams."""
        exported, student, writing, context = self._loaded
        passes = Passes(slow=exported.has_slow_pass, writing=writing)
        target = {} if exported.need_target == "marginal" else {"need_target": exported.need_target}
        settings: dict[str, Any] = {"split": "test", "fold": 0, "context": context, "batch": _BATCH}
        rows = score_passes(student, read_streams(self.streams), passes, **settings).rows
        return Scores.from_rows(row | target for row in rows)

    def study(self, scores: str | None, settings: IntervalSettings, method: Method = "corrected") -> Study:
        """The streams' steps with the signals of a scores table, or else of the student, calibrated by the export.

        Raises:
          ValueError, OSError: naming the file that cannot be used, or a step that was timed and that the table lacks.
        """
        exported = self._loaded[0]
        rows = self._scores if scores is None else evaluated_rows(read_all(scores, extra=False))
        # Of a fit, only the map is read.
        fits: dict[str, Any] = {name: SignalFit(of, 0.5, 1, 1.0, 0.5) for name, of in exported.maps.items()}
        calibration = Calibration(**fits, need_target=exported.need_target)
        point = dataclasses.replace(exported.point, **self.costs)
        steps, thought = rows.steps(), rows.steps("slow") if exported.has_slow_pass else None
        timed = set(self.timing.steps)
        if missing := timed - set(zip(steps.stream.tolist(), steps.step.tolist(), strict=True)):
            raise ScoresError(f"found no row of {min(missing)}, expected every step of --streams", place=scores or "")
        data = EvaluationData(steps, calibration, point, thought, False, candidates=rows)
        data = dataclasses.replace(data, whole=whole_of(data))
        source = f"{len(steps)} steps of {epath.Path(scores or self.streams).name}"
        off = {"slow pass": f"{self.folder} has no slow pass"}
        known: dict[str, Any] = {"prepared": (data, off), "timed": lambda: self.timing}
        return Study(rows, calibration, source, point, settings, method, **known)
