"""Batches of requests to an agent with a store, and what an agent with everything in memory makes of them."""

import pathlib
import random
import re
import tempfile

from fake_reader import FakeReader, exported

from prism_jax.agent.agent import Agent
from prism_jax.agent.ledger import RefusedError
from prism_jax.agent.people import People
from prism_jax.agent.records import OUTCOMES, OfferOutcome, encode
from prism_jax.agent.records_file import parse_record
from prism_jax.agent.settings import AgentSettings, Budget, Exploration, PeopleSettings, Terms
from prism_jax.agent.state.durable import DurableAgent, Events
from prism_jax.agent.state.reading import Cursor, read_log
from prism_jax.agent.state.store import open_store
from prism_jax.agent.steps import AN_OFFER, Observation
from prism_jax.streams import Candidate, Event

SETTINGS = AgentSettings(
    Terms(exported().point, offers=Budget(3, 500.0), exploration=Exploration(0.2, loss=0.5, seed=3)),
    keep_texts=True,
    people=PeopleSettings(alarm=0.2),
)
FOLDER = tempfile.TemporaryDirectory()
PEOPLE = {"s0": "ada", "s1": "ada", "s2": "bob", "s3": None, "s4": None}


def in_mind(settings=None, population=None):
    """People of a new state as an agent knows them, of whom nothing is kept for another process."""
    store = open_store(tempfile.mkdtemp(dir=FOLDER.name), population)
    store.partition(0).begin()
    return People(store, settings)


def durable(store, **options):
    return DurableAgent(FakeReader(slow=True), exported(), store, SETTINGS, **options)


def observation(stream, number, text=None):
    offers = tuple(Candidate(text=f"offer {i}") for i in range(number % 3)) or AN_OFFER
    event = Event(time=30.0 * number, text=text or f"event {number} of {stream}")
    return Observation(stream, event, offers, {"c_fn": 3.0} if number % 5 == 0 else None, "code", PEOPLE[stream])


def ask(agent, *items, **beside):
    """The answers to events, each of which is a request of its own."""
    return agent.answer([Events((item,), **beside) for item in items])


def holding(folder, words=b"canary"):
    """The files in a folder that have certain words."""
    files = [path for path in pathlib.Path(folder).rglob("*") if path.is_file()]
    return [path for path in files if re.search(words, path.read_bytes())]


def requests(count, seed=0):
    """Batches of events, several of a stream among them, and an outcome now and then of an offer that may exist."""
    draw, numbers = random.Random(seed), dict.fromkeys(PEOPLE, 0)
    for i in range(count):
        batch = []
        for stream in draw.choices(list(PEOPLE), k=draw.randint(1, 4)):
            items = []
            for _ in range(draw.randint(1, 2)):
                items.append(observation(stream, numbers[stream]))
                numbers[stream] += 1
            batch.append(Events(tuple(items), f"key {i} {len(batch)}", b"same"))
            if draw.random() < 0.5:
                offer = f"{stream}/{draw.randrange(numbers[stream])}"
                answer = OfferOutcome(stream, offer, draw.choice(OUTCOMES), 30.0 * numbers[stream])
                batch.append(answer)
        yield batch


def plain(record):
    """A record without what differs between two runs: how long it took."""
    return {key: value for key, value in record.items() if key != "seconds"}


def log_of(store, stream):
    found, _ = read_log(store.folder, Cursor(), 10_000, stream=stream)
    return [plain(one.record) for one in found]


def in_memory(batches):
    """The records of one agent with everything in memory, by stream."""
    agent = Agent(FakeReader(slow=True), exported(), SETTINGS, in_mind(SETTINGS.people))
    logs = {stream: [] for stream in PEOPLE}
    for batch in batches:
        for request in batch:
            if isinstance(request, OfferOutcome):
                try:
                    logs[request.stream].append(agent.outcome(**request._asdict()).record())
                except RefusedError:
                    continue
            else:
                logs[request.items[0].stream] += [one.record() for one in agent.observe_many(request.items)]
    return {stream: [plain(parse_record(encode(one), "")) for one in own] for stream, own in logs.items()}
