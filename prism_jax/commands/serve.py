"""Serves a model, or an agent with state.

    python -m prism_jax serve --model=exported
    python -m prism_jax serve --state=DIR [--model=DIR] [--token_file=FILE]

Clients of `POST /v1/decisions` ask whether help is needed (the predicate `need`) and whether an offer would be accepted
(`accept`, or `accept:TEXT`), and get calibrated probabilities; so do those of `POST /v1/systemone`, by nouls
(docs/decision_models.md). An engine or a decision model elsewhere will do (--engine, --decisions). With --state it is
an agent, too: streams, people, decisions and outcomes are kept in DIR (docs/service.md), and callers that have numbers
of their own need no model at all. Without --token_file it answers on this machine alone.
--replicas has the first routes alone, of a model that is read here, and --owners has all of them.
"""

from __future__ import annotations

import contextlib
import functools
import math
import os
import pathlib
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from absl import flags
from etils import epath

from prism_jax.agent.exported import fingerprint, read_exported
from prism_jax.agent.loading import define_number_flags
from prism_jax.agent.serving import (
    DECISION_OPTIONS,
    SETTINGS,
    check_goes_with,
    define_asking_flags,
    define_reading_flags,
    define_settings_flags,
)
from prism_jax.decision.calibration import Map, Temperature
from prism_jax.gate import Gate
from prism_jax.runtime import command, digests, distributed
from prism_jax.runtime.command import check_together, refuse_empty

if TYPE_CHECKING:
    import fastapi

    from prism_jax.agent.service.door import Door
    from prism_jax.agent.service.http import Limits
    from prism_jax.agent.service.tokens import Tokens

OF_A_DOOR = ("shadow", "keep_days", "sweep_share", "owners")
ONLY_WITH_STATE = ("partitions", "population", *OF_A_DOOR, *SETTINGS)
"""Flags that say nothing of decisions that each bring their stream."""
OF_THE_DOOR = (*OF_A_DOOR, "ray", "gpus", "host", "port", "token_file", "waiting", "body", "replicas")
"""Flags that say nothing of how owners decide."""
LEAST_DAYS = 1 / 24
"""Least --keep_days."""
OF_A_MODEL = (
    *("dtype", "compute", "context", "memory", "keep", "compilation_cache", "expect_digest", "deadline", "key"),
    *DECISION_OPTIONS,
)
"""Flags that say nothing where callers state numbers."""


def define_flags() -> None:
    """Defines the flags."""
    flags.DEFINE_string("model", None, "Directory of an exported model, or workdir of a trained run.")
    flags.DEFINE_string("state", None, "Folder of what is kept of streams and people; it is made where it is missing.")
    flags.DEFINE_integer(
        "partitions", None, "Number of parts of a new --state, which cannot change later; default: 256.", 1, 1024
    )
    flags.DEFINE_string("population", None, "Parameters of the person layer, for a new --state.")
    flags.DEFINE_string("name", None, "Name of the model for its clients; by default that of the directory.")
    flags.DEFINE_string("host", "127.0.0.1", "Address to listen on; any but this machine's own needs --token_file.")
    flags.DEFINE_integer("port", 8000, "Port to listen on; 0 takes a free one.", 0, 65535)
    flags.DEFINE_string(
        "token_file",
        None,
        "File of bearer tokens, one a line, or TENANT TOKEN, or TENANT TOKEN SCOPES (such as decide,read).",
    )
    flags.DEFINE_string("gate", None, "gate.json whose maps calibrate the model, or without one the callers' numbers.")
    flags.DEFINE_integer("waiting", 256, "Most requests that wait; further ones get the status 429.", 1)
    flags.DEFINE_integer("body", 2**20, "Most bytes of a request.", 1)
    flags.DEFINE_integer("streams", None, "Most streams in memory; default: 1,024, with --state 10,000.", 1)
    flags.DEFINE_bool(
        "shadow", False, "Watch, with --state: the host decides, and the records compare the gate with it."
    )
    flags.DEFINE_float(
        "keep_days", None, "With --state, delete streams of which nothing came for so many days, an hour or more.", 0.0
    )
    flags.DEFINE_float(
        "sweep_share",
        0.5,
        "With --keep_days, largest share of the streams that may go where the clock has moved far since the last "
        "sweep; 1 if that time has passed.",
        0.0,
        1.0,
    )
    flags.DEFINE_integer(
        "owners", None, "With --state, divide it among so many processes of Ray (extra `cluster`); 0 ends them.", 0
    )
    flags.DEFINE_string("replicas", None, "Without --state, NUMBER or LEAST:MOST replicas of the model, by Ray Serve.")
    flags.DEFINE_float("gpus", 0.0, "GPUs of each owner or replica; a fraction shares one.", 0.0)
    flags.DEFINE_string(
        "ray", None, "Address of the Ray cluster to join, such as auto; by default one on this machine."
    )
    flags.DEFINE_float("lease", 10.0, "With --owners, seconds after which what a lost one had can be taken.", 0.1)
    define_reading_flags()
    define_number_flags()
    define_asking_flags()
    define_settings_flags()
    distributed.define_cache_flag()
    digests.define_flag("--model")
    refuse_empty("model", "state", "population", "name", "host", "token_file", "gate", "engine", "decisions")


def main() -> None:
    """Serves until it is told to stop."""
    with _extra("serve"):
        import uvicorn  # noqa: F401  a missing extra is said before anything is loaded

        from prism_jax.agent.service.http import LOOPBACK, Limits
        from prism_jax.agent.service.tokens import Tokens
    options = flags.FLAGS.flag_values_dict()
    _check(options)
    tokens = Tokens.read(options["token_file"]) if options["token_file"] else Tokens()
    if not tokens and options["host"] not in LOOPBACK:
        raise ValueError(f"--token_file: found none with --host={options['host']}, expected one, or {LOOPBACK[0]}")
    limits = Limits(body=options["body"], waiting=options["waiting"])
    if options["owners"] == 0:
        return _end_owners(options)
    if options["replicas"] is not None:
        return _replicated(options, tokens, limits)
    with contextlib.ExitStack() as stack:
        make = _stateless if options["state"] is None else _with_state
        app, name = make(options, tokens, limits, stack)
        _run(app, name, options)


def _check(options: Mapping[str, Any]) -> None:
    """ValueError, naming the flag, for one that says nothing where there is no --state, or no model."""
    check_together(
        "ray gpus without owners replicas: it with one of them",
        "sweep_share without keep_days: it with that flag",
        "lease without owners: it with them",
    )
    for name in ("keep_days", "lease", "gpus"):
        if options[name] is not None and not math.isfinite(options[name]):
            raise ValueError(f"--{name}: found {options[name]}, expected a finite number")
    if options["keep_days"] is not None and options["keep_days"] < LEAST_DAYS:
        raise ValueError(f"--keep_days: found {options['keep_days']:g}, expected at least {LEAST_DAYS:g}, an hour")
    if options["owners"] == 0 and options["state"] is not None:
        if options["ray"] is None:
            raise ValueError("--ray: found none with --owners=0, expected the cluster whose owners shall end")
        return  # nothing will be decided
    has_model = options["model"] is not None or options["decisions"] is not None
    if options["state"] is None:
        if not has_model:
            raise ValueError("--model: found none, expected it, or --decisions or --state")
        check_together(
            f"{' '.join(name for name in ONLY_WITH_STATE if name != 'redact')} without state: it with one",
            "redact without state decisions: it with one of them",
            "engine decisions with replicas: it without: one server asks it",
        )
    else:
        _check_state(options, has_model)
    if has_model:
        check_goes_with(options, {"decision_model": options["decisions"] is not None})
        if options["decisions"] is not None and options["decision_model"] is None:
            raise ValueError("--decision_model: found none, expected it with --decisions")


def _check_state(options: Mapping[str, Any], has_model: bool) -> None:
    """ValueError, naming the flag, for one that does not go with --state, or is missing there."""
    check_together(
        "replicas with state: it without, or --owners",
        "answers with state: it without: each tenant's are kept in the state",
    )
    if not has_model:
        of_a_model = f"engine name {' '.join(OF_A_MODEL)}"
        check_together(f"{of_a_model} without model decisions: it with one of them", options=options)
        if options["gate"] is None and None in (options["c_fa"], options["c_fn"]):
            raise ValueError("--c_fa, --c_fn: found no cost and no --model, expected both, or --gate with them in it")


def _stateless(
    options: Mapping[str, Any], tokens: Tokens, limits: Limits, stack: contextlib.ExitStack
) -> tuple[fastapi.FastAPI, str]:
    """The server of decisions that each bring their stream."""
    from prism_jax.agent.service.app import make_app
    from prism_jax.agent.service.http import Served
    from prism_jax.agent.service.loading import answering_of

    name = str(_name(options))
    return make_app(Served(answering_of(options, stack), limits.waiting), name, tokens=tokens, limits=limits), name


def _about(options: Mapping[str, Any]) -> str:
    """What is served, and whether that is calibrated, by what."""
    if options["state"] is None:
        return f"decisions and systemone; {_calibrated(options)}"
    more = "" if _name(options) is None else "decisions and systemone, events, "
    return f"{more}decide, outcomes, records, people and /me; {_calibrated(options)}"


def _calibrated(options: Mapping[str, Any]) -> str:
    """Whether the probabilities are calibrated, and by what."""
    maps: Iterable[Map | None] = ()
    if options["gate"]:
        gate = Gate.load(options["gate"]).for_models(options["gate"])
        maps = gate.need, gate.accept
    elif options["model"] is not None:
        if not (epath.Path(options["model"]) / "prism.json").exists():  # a run, which is exported with its maps
            return f"with the maps of {options['model']}"
        maps = read_exported(options["model"], options["expect_digest"]).maps.values()
    if any(own not in (None, Temperature(1.0)) for own in maps):
        return f"calibrated by {options['gate'] or options['model']}"
    if _name(options) is None:
        return "callers' probabilities are taken for calibrated"
    if options["questions"] == "slots":  # of a server of ours, which has maps of its own
        return "with the maps of the server that --decisions names"
    return "not calibrated: `python -m prism_jax calibrate` writes a file for --gate"


def _name(options: Mapping[str, Any]) -> str | None:
    """What clients call the model; None without one."""
    model = options["model"] and pathlib.Path(options["model"]).resolve().name
    return options["name"] or options["decision_model"] or model


def _replicated(options: Mapping[str, Any], tokens: Tokens, limits: Limits) -> None:
    """Serves from replicas of the model until it is told to stop."""
    with _extra("cluster"):
        import ray

        from prism_jax.agent.service.loading import answering_of, load_answering
        from prism_jax.agent.service.replicas import run_replicas
    least, _, most = options["replicas"].partition(":")
    try:
        numbers = int(least), int(most or least)
        if not 1 <= numbers[0] <= numbers[1]:
            raise ValueError
    except ValueError:
        raise ValueError(f"--replicas: found {options['replicas']!r:.80}, expected NUMBER or LEAST:MOST") from None
    with contextlib.ExitStack() as checked:  # what is wrong with the flags is said here
        answering_of(options, checked)
    _start_ray(ray, options, numbers[1])
    place, about = f"serving {_name(options)} at http://{options['host']}", _about(options)
    run_replicas(
        functools.partial(load_answering, dict(options)),
        str(_name(options)),
        tokens=tokens,
        limits=limits,
        least=numbers[0],
        most=numbers[1],
        gpus=options["gpus"],
        host=options["host"],
        port=options["port"],
        on_ready=lambda port: command.say(f"{place}:{port}/v1 ({about})"),
        report=command.say,
    )


def _start_ray(ray: Any, options: Mapping[str, Any], processes: int) -> None:
    """Joins the cluster of --ray, or starts one on this machine with places for so many processes."""
    # One more than they need: a lost one is replaced before what it had is free.
    here = {} if options["ray"] else {"num_cpus": max(processes, os.cpu_count() or 1) + 1, "include_dashboard": False}
    ray.init(address=options["ray"] or "local", log_to_driver=True, **here)


def _with_state(
    options: Mapping[str, Any], tokens: Tokens, limits: Limits, stack: contextlib.ExitStack
) -> tuple[fastapi.FastAPI, str]:
    """The server of an agent."""
    from prism_jax.agent.service.door import Door
    from prism_jax.agent.service.loading import agents_of
    from prism_jax.agent.service.state_app import make_state_app
    from prism_jax.agent.state.places import tenants_of

    if lost := [name for name in tenants_of(options["state"]) if name not in tokens.tenants]:
        command.say(f"--token_file: no token of {', '.join(lost)}: nobody can ask what {options['state']} has of them")
    if options["owners"] is None:
        load, _ = agents_of(options, tokens.tenants, stack)
        door = Door(load, options["state"], limits.waiting)
    else:
        door = _divided(options, tokens.tenants, limits.waiting)
    model = _name(options)
    kept = {name: options[name] for name in ("shadow", "keep_days", "sweep_share")}
    app = make_state_app(door, model=model, tokens=tokens, limits=limits, **kept)
    return app, "decisions on callers' numbers" if model is None else f"an agent and {model}"


def _divided(options: Mapping[str, Any], tenants: Sequence[str], waiting: int) -> Door:
    """The door to owners of partitions, which are actors of Ray."""
    with _extra("cluster"):
        import ray

        from prism_jax.agent.service.cluster import start_owners
        from prism_jax.agent.service.divided import DividedDoor
        from prism_jax.agent.service.loading import agents_of, load_agents
    with contextlib.ExitStack() as checked:  # what is wrong with the flags is said here
        counts = {store.partitions for store in agents_of(options, tenants, checked, alone=False)[1]}
    if len(counts) > 1:
        raise ValueError(f"--state: found stores of {sorted(counts)} partitions, expected one number for all tenants")
    partitions = counts.pop()
    _start_ray(ray, options, options["owners"])
    own = {name: value for name, value in options.items() if name not in OF_THE_DOOR and name in _defined()}
    # Where others compute the signals, an owner mostly waits for its disk.
    computes = options["model"] is not None and options["engine"] is None
    owners = start_owners(
        functools.partial(load_agents, own, tuple(tenants)),
        options["state"],
        owners=options["owners"],
        partitions=partitions,
        waiting=waiting,
        resources={"num_cpus": 1.0 if computes else 0.25, "num_gpus": options["gpus"]},
        settings=fingerprint([own, list(tenants)]),
        stays=bool(options["ray"]),
    )
    return DividedDoor(owners, options["state"], partitions)


def _end_owners(options: Mapping[str, Any]) -> None:
    with _extra("cluster"):
        import ray

        from prism_jax.agent.service.cluster import stop_owners
    _start_ray(ray, options, 1)
    command.say("ended" if stop_owners(options["state"]) else f"--owners: found none of {options['state']}")


@contextlib.contextmanager
def _extra(name: str) -> Iterator[None]:
    """Says which extra brings a library that an import in the block lacks."""
    try:
        yield
    except ImportError as error:
        raise ValueError(f"found no library {error.name}, expected it: pip install 'prism_jax[{name}]'") from error


def _defined() -> frozenset[str]:
    """The flags of this command; those of libraries differ between processes."""
    own = flags.FLAGS.flags_by_module_dict()
    modules = [name for name in own if name.startswith(("prism_jax", "__main__")) or name == sys.argv[0]]
    return frozenset(flag.name for name in modules for flag in own[name])


def _run(app: fastapi.FastAPI, name: str, options: Mapping[str, Any]) -> None:
    """Listens until it is told to stop; raises what loading the model has raised."""
    import uvicorn

    from prism_jax.agent.service.connection import listen, make_config

    host, port, about = options["host"], options["port"], _about(options)
    with listen(host, port) as listening:
        server, served = uvicorn.Server(make_config(app, timeout_graceful_shutdown=30)), app.state.prism
        address = f"http://{f'[{host}]' if ':' in host else host}:{listening.getsockname()[1]}"

        def stop() -> None:
            server.should_exit = True

        def ready() -> None:
            if not server.should_exit:
                command.say(f"serving {name} at {address}/v1 ({about})")

        served.on_failure, served.on_ready, served.is_stopping = stop, ready, lambda: server.should_exit
        server.run(sockets=[listening])
        if served.failure is not None:
            raise served.failure
        if not served.is_ready:  # it was told to stop while it loads, which nothing else ends
            os._exit(0)


if __name__ == "__main__":
    define_flags()
    command.start(main)
