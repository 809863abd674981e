"""Scores many streams with an exported student.

    python -m prism_jax score --model=exported --streams='logs/*.jsonl' --workdir=scores [--workers=4] [--skip_bad]
    python -m prism_jax evaluate --scores=scores --calibration=runs/quickstart/calibration.json --workdir=out

Every step and candidate of the streams gets a row of the scores table (docs/scores.md), as the evaluation of a run
writes it, in Parquet files of a bounded number of streams, beside them what a student that writes responses wrote, as
streams that can be judged. Started again after any end, it keeps the files that are there and makes the others; the
result is the same to the byte. --model may also be the workdir of a trained run.
"""

from __future__ import annotations

import dataclasses
import functools
import gc
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from absl import flags
from etils import epath

from prism_jax.agent.exported import Exported, read_exported
from prism_jax.agent.loading import (
    define_number_flags,
    exported_model,
    load_student,
    load_template,
    writing_of,
)
from prism_jax.runtime import command, digests
from prism_jax.runtime.command import refuse_empty
from prism_jax.runtime.distributed import define_cache_flag, keep_programs
from prism_jax.runtime.files import read_object, without_links
from prism_jax.streams import Stream
from prism_jax.streams.shards import Shard, ShardSettings, find_files

if TYPE_CHECKING:  # what scores loads JAX, which help and what is refused before do without
    from prism_jax.runs.many_streams import ShardScorer
    from prism_jax.student.products import Compute
    from prism_jax.student.scoring.fast import Offers
    from prism_jax.student.scoring.passes import Passes

_SHOWN = 5


@dataclasses.dataclass(frozen=True)
class _Loader:
    """Loads what scores a shard, in the process that does."""

    model: str  # folder of the exported student
    exported: Exported
    passes: Passes
    settings: ShardSettings
    dtype: str
    compute: Compute
    out: str
    compilation_cache: str | None

    def __call__(self) -> ShardScorer:
        from prism_jax.runs.many_streams import ShardScorer

        keep_programs(self.compilation_cache, all_of_them=True)
        student = load_student(self.model, self.exported, self.dtype, self.compute)
        return ShardScorer(student, self.passes, self.settings, self.exported.need_target, self.out)

    def pack(self) -> Callable[[Stream], list[Offers]]:
        """A function that packs a stream; it raises ValueError where a decision does not fit into the context."""
        from prism_jax.agent.live import most_written
        from prism_jax.runs.many_streams import FOLD
        from prism_jax.student.scoring.fast import packed_offers

        template, passes, settings = load_template(self.model, self.exported), self.passes, self.settings
        written = most_written(template, passes.writing, passes.slow, passes.responses)
        packing: dict[str, Any] = {"split": settings.split, "fold": FOLD, "context": settings.context}
        return lambda stream: list(packed_offers(stream, template, **packing, written=written))

    def identity(self) -> dict[str, Any]:
        """What identifies the model, and what it is asked for."""
        exported = self.exported
        own = {"sha256": exported.fingerprints["model"], "need_target": exported.need_target, "dtype": self.dtype}
        own |= {"compute": self.compute} if self.compute != "float32" else {}  # as in folders from before the option
        return own | dataclasses.asdict(self.passes)

    def runner(self, kind: str, count: int) -> Callable[[Sequence[Shard]], Iterator[Shard]]:
        """A function that scores shards with so many workers."""
        from prism_jax.runs import workers

        if kind == "ray":
            return functools.partial(workers.on_ray, self, workers=count)
        if count == 1:
            return functools.partial(workers.in_process, self)
        return functools.partial(workers.in_processes, self, workers=count)


def score(options: Mapping[str, Any]) -> None:
    """Scores the streams, and prints what was scored and what was left out.

    `options` has the values of the flags. ValueError, OSError or RuntimeError, in one line, for a model, streams or a
    folder that cannot be used.
    """
    files = find_files(options["streams"])
    _check_out(options["workdir"], options["model"], files)
    with exported_model(options["model"]) as model:
        loader = _loader(model, options)
        from prism_jax.runs.many_streams import score_many  # after all that is refused without it

        shards = score_many(
            epath.Path(options["workdir"]),
            files,
            loader.identity(),
            loader.settings,
            loader.pack(),
            loader.runner(options["runner"], options["workers"]),
            texts=loader.passes.responses,
            skip_bad=options["skip_bad"],
        )
    without = sum(file.streams for file in shards.files) - shards.streams
    print(
        f"scored: {shards.streams:,} streams, {shards.decisions:,} decisions, in {len(shards.shards):,} files: "
        f"{options['workdir']}" + (f"; {without:,} streams without steps have no rows" if without else "")
    )
    if shards.left_out:
        print(f"left out: {len(shards.left_out):,} of {len(files):,} files")
        print("\n".join(f"  {problem}" for problem in shards.left_out[:_SHOWN]))


def _check_out(out: str, model: str, files: Sequence[str]) -> None:
    """Refuses a --workdir that is no folder, or a folder of other things: the model, or the streams."""
    path, model_folder = (epath.Path(without_links(folder)) for folder in (out, model))
    if epath.Path(out).exists() and not epath.Path(out).is_dir():
        raise ValueError(f"--workdir: found a file at {out}, expected a folder or a new one")
    if path == model_folder or ((epath.Path(model) / digests.NAME).exists() and model_folder in path.parents):
        raise ValueError(f"--workdir: found {out}, in the folder of --model, expected one outside it")
    if path in {epath.Path(without_links(file)).parent for file in files}:
        raise ValueError(f"--workdir: found {out}, the folder of --streams, expected one of its own")


def _loader(model: epath.Path, options: Mapping[str, Any]) -> _Loader:
    """The loader of an exported student, all of whose files are compared with their digests."""
    exported = read_exported(model, options["expect_digest"])
    if exported.is_probe:
        raise ValueError(f"{options['model']}: found a probe, expected an exported student")
    digests.check_folder(model, exported.fingerprints["model"])
    context = options["context"]
    if context is None:
        path = model / "tokenizer_config.json"
        context = read_object(path, digests.EXPORT).get("model_max_length")
        if type(context) is not int:
            raise ValueError(f"{path}: model_max_length: found {context!r:.80}, expected tokens; --context states them")
    from prism_jax.student.dispatch import check_compute
    from prism_jax.student.scoring.passes import Passes

    check_compute(options["compute"])
    settings = ShardSettings(context, options["split"], options["batch"], options["shard"])
    # As in an evaluation, all that it was trained for.
    passes = Passes(exported.has_slow_pass, exported.writes_responses, writing_of(model, exported))
    passes = Passes() if options["fast_only"] else passes
    if options["reread"]:
        if not passes.responses:
            raise ValueError("--reread: found no responses to read again, expected a student that writes them")
        passes = dataclasses.replace(passes, writing=dataclasses.replace(passes.writing, reread=True))
    return _Loader(
        str(model),
        exported,
        passes,
        settings,
        options["dtype"],
        options["compute"],
        options["workdir"],
        options["compilation_cache"],
    )


def define_flags() -> None:
    """Defines the flags."""
    flags.DEFINE_string("model", None, "Directory of an exported student, or workdir of a trained run.")
    digests.define_flag("--model")
    flags.DEFINE_string("streams", None, "Streams to score, one per line (JSONL): a file, a folder or a glob.")
    flags.DEFINE_string("workdir", None, "Folder to write the scores to, or to complete.")
    flags.DEFINE_integer("workers", 1, "Processes that score at the same time; on GPUs, at most one each.", 1)
    flags.DEFINE_enum("runner", "local", ["local", "ray"], "Whether processes of this machine work, or actors of Ray.")
    flags.DEFINE_bool("skip_bad", False, "Leave out damaged files, and say so, instead of stopping at the first.")
    flags.DEFINE_bool("fast_only", False, "Leave out the slow pass and the responses of a student that has them.")
    flags.DEFINE_bool("reread", False, "Read the accept slot once more, after the written proposal.")
    flags.DEFINE_string("split", ShardSettings.split, "What to write into the column split, such as calibration.")
    flags.DEFINE_integer("context", None, "Most tokens up to the end of one decision; by default the student's own.", 1)
    flags.DEFINE_integer("batch", ShardSettings.batch, "Streams per forward pass.", 1)
    flags.DEFINE_integer("shard", ShardSettings.shard, "Streams per file of scores.", 1)
    define_number_flags("float32")
    define_cache_flag()
    refuse_empty("model", "streams", "workdir")
    flags.mark_flags_as_required(["model", "streams", "workdir"])


def main() -> None:
    """Runs what the flags say."""
    gc.set_threshold(50_000)  # what is decoded and packed has no cycles, and a tenth of the time went into the search
    score(flags.FLAGS.flag_values_dict())


if __name__ == "__main__":
    define_flags()
    command.start(main)
