"""Flags that say nothing, contradict each other or name a file twice: one line says so, and nothing is made."""

import forked
import pytest

REFUSED = """
serve -> --model: found none, expected it, or --decisions or --state
serve --decisions=http://h --decision_model=m --replicas=2 -> --decisions: found it with --replicas
serve --model=none --deadline=2 -> --deadline: found it with neither --engine nor --decisions
serve --model=none --c_fa=1 -> --c_fa: found it without --state
serve --model=none --nooptimism -> --optimism: found it without --state
serve --model=none --noredact -> --redact: found it without --state and --decisions
serve --state=s -> --c_fa, --c_fn: found no cost and no --model
serve --state=s --c_fa=1 --c_fn=2 --memory=9 -> --memory: found it without --model and --decisions
serve --state=s --c_fa=1 --c_fn=2 --expect_digest=DIGEST -> --expect_digest:
serve --state=s --model=m --deadline=2 -> --deadline: found it with neither --engine nor --decisions
serve --state=s --c_fa=1 --c_fn=2 --name=x -> --name: found it without --model and --decisions
serve --state=s --decisions=http://h --decision_model=m --answers=a -> --answers: found it with --state
calibrate --labels=l --out=o -> --model: found none, expected it without --decisions
calibrate --labels=l --out=o --check=g -> --out: found it with --check, expected one of --out and --check
calibrate --labels=l --out=o --decisions=http://h -> --decision_model: found none, expected it with --decisions
calibrate --labels=l --out=o --decisions=http://h --engine=vllm:http://h -> --decisions: found it with --engine
calibrate --labels=l --out=o --model=x --key=K -> --key: found it without what it is for
calibrate --labels=l --out=o --decisions=http://h --decision_model=m --model=x -> --model: found it with
judge --streams=s.jsonl --page_out=p.html --out=o.jsonl -> --out: found it with
judge --streams=s.jsonl --sample=3 --votes=v.jsonl -> --sample: found it
judge --streams=s.jsonl --human=v.jsonl --out=o.jsonl -> --out: found it with --human, expected --votes, too
label --out=out -> --streams: found no value, expected streams to label, or --agent with --source
label --out=out --agent --source=x -> --agent: expected it with --config, the endpoint to prompt, and --source or
label --out=out --source=x --streams=y -> --source: found it without --agent, expected --streams
label --out=out --agent --config=TEACHER --source=x --text_calibrator=y -> --text_calibrator: found it with --agent
label --streams=in.jsonl --text_calibrator=x --out=o --workers=2 -> --workers: found it without --config, expected a
label --config=TEACHER --streams=in.jsonl --out=in.jsonl -> --out: found in.jsonl, the file of --streams, expected
label --config=TEACHER --streams=in.jsonl --out=x --rows_out=./x -> --rows_out: found x, the file of --out, expected
label --config=TEACHER --out=in --streams=in.rows.jsonl -> --rows_out: found in.rows.jsonl, the file of --streams
label --sharegpt=absent.json --out=y -> --sharegpt: found it here, expected `python -m prism_jax import
import --source=x --out=y -> --from: found no value, expected a source (--list shows them)
import --from=sharegpt --source=absent.json --out=y -> absent.json: no such file, expected
import --from=records --source=x --out=no/y -> no/y: found no folder no, expected an
import --from=contextagent --source=x -> --out: expected either a file to write, or --workdir with
import --from=records --source=x --out=y --medium=true -> --medium: found it with
import --from=recorded --source=TRACES --workdir=y -> --workdir: found no split in this source, expected --out, a
import --from=recorded --source=x --out=y --agent_data=z -> --agent_data: expected it with --from=proactivebench and
counterfactual --log=x COLUMNS --calibration=c -> --calibration: found it with --log and --columns
counterfactual --records=x.jsonl COLUMNS -> --columns: found it with --records, expected a log
counterfactual --scores=x.parquet --shown_only -> --shown_only: found it without --log and --columns
counterfactual --records=x.jsonl --workers=2 -> --workers: found it with --records, expected it with a scores
counterfactual --scores=x.csv COLUMNS --skip_bad -> --skip_bad: found it with --columns, expected it with a scores
evaluate --scores=log.csv COLUMNS --workdir=out --policy=fixed -> --policy: found it with --columns, expected it with
evaluate --scores=log.csv COLUMNS --workdir=out --notexts -> --texts: found it with --columns, expected it with a
evaluate --scores=log.csv --workdir=out --context=app -> --context: found it without --columns, expected both, of a
evaluate --scores=log.csv --workdir=out --weighted -> --weighted: found it without --columns, expected both, of a
evaluate --scores=log.csv COLUMNS --workdir=out --weighted --shown_only -> --weighted: found it with --shown_only
evaluate --scores=x.parquet --workdir=out --calibrator=platt --calibration=x -> --calibrator: found it with
evaluate --workdir=out --calibrator=platt -> --calibrator: found it without --scores, expected it with a scores
coverage --times=20 -> --of: found no value, expected one (see --help)
coverage --of=overlap --units=9 -> --units: found it with --of=overlap, expected --of=counterfactual or promises
coverage --of=alarms COLUMNS -> --columns: found it without --log, expected the log
coverage --of=alarms --log=log.csv COLUMNS --times=20 -> --times: found it with --log, expected it
coverage --of=recalibration --log=log.csv COLUMNS,score=s -> --columns: found score, expected person, time, accepted
coverage --of=promises --log=log.csv COLUMNS --data_dir=DIR -> --data_dir: found it without --source, expected the
coverage --of=counterfactual -> --log: found none, expected an acceptance log in which every offer was answered
coverage --of=promises -> --log, --source: expected exactly one of them
"""
PATHS = {
    "TEACHER": f"{forked.ROOT}/configs/teacher.py",
    "TRACES": f"{forked.ROOT}/tests/streams/traces",
    "COLUMNS": "--columns=person=who,accepted=yes",
    "DIGEST": "0" * 64,
}


@pytest.mark.parametrize("line", REFUSED.strip().splitlines(), ids=lambda line: line.partition(" -> ")[0])
def test_flags_are_refused_before_anything_is_made(line, tmp_path):
    (tmp_path / "in.jsonl").write_text("")
    (tmp_path / "log.csv").write_text("who,yes,app\na,1,x\na,0,x\nb,1,x\nb,0,x\n")
    before = {path.name: path.read_bytes() for path in tmp_path.iterdir()}
    command, _, message = line.partition(" -> ")
    for name, value in PATHS.items():
        command = command.replace(name, value)
    name, *flags = command.split()
    program, late = "studies" if name == "coverage" else "prism_jax", {"PYTHONPATH": str(forked.ROOT)}
    done = forked.run(program, name, *flags, cwd=tmp_path, late=late)
    *more, error = done.stderr.splitlines()
    assert done.returncode == 1 and error.startswith(f"error: {message}"), done.stderr
    assert not more or name == "serve"
    assert {path.name: path.read_bytes() for path in tmp_path.iterdir()} == before
