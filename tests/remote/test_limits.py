"""Rate limits, on a clock that only sleeping moves."""

import asyncio
import email.utils
import itertools
import time

import pytest
import tenacity
from asking import ask
from hypothesis import given, settings
from hypothesis import strategies as st

from prism_jax.remote.endpoints import EndpointConfig
from prism_jax.remote.failures import TransientError, retry_after
from prism_jax.remote.fake import Faults
from prism_jax.remote.pacing import Limiter, Retries


class Clock:
    """Seconds that pass while something sleeps."""

    def __init__(self):
        self.now = 0.0

    def __call__(self):
        return self.now

    async def sleep(self, seconds):
        assert seconds > 0
        self.now += seconds
        await asyncio.sleep(0)


def limiter_of(clock, requests=0, tokens=0, window=60.0):
    endpoint = EndpointConfig("m", "http://h/v1", requests_per_minute=requests, tokens_per_minute=tokens, window=window)
    return Limiter(endpoint, clock, clock.sleep)


def times_of(limiter, clock, sizes, used=None):
    """When each attempt is sent, if all ask at once; `used` is what the server counts instead of their sizes."""

    async def one(index, size):
        place = await limiter.room(size)
        when = clock.now
        if used is not None:
            limiter.correct(place, used[index])
        return when

    async def ask_all():
        return await asyncio.gather(*(one(index, size) for index, size in enumerate(sizes)))

    return asyncio.run(ask_all())


@settings(max_examples=60)
@given(
    st.lists(st.integers(1, 40), min_size=1, max_size=30),
    st.integers(0, 12),
    st.integers(0, 60),
    st.sampled_from([10.0, 60.0]),
)
def test_no_window_holds_more_than_allowed_and_none_waits_longer_than_it_must(sizes, requests, tokens, window):
    clock = Clock()
    most_requests, most_tokens = requests * window / 60, tokens * window / 60
    times = times_of(limiter_of(clock, requests, tokens, window), clock, sizes)
    assert times == sorted(times)
    for index, start in enumerate(times):
        inside = [i for i in range(index + 1) if start - window < times[i] <= start]
        if requests:
            assert len(inside) <= max(1, most_requests)
        if tokens and len(inside) > 1:
            assert sum(sizes[i] for i in inside) <= most_tokens
        if index and start > times[index - 1]:
            # Just before, one of the limits was in the way.
            before = [i for i in range(index) if start - 0.01 - window < times[i]]
            many = requests and len(before) + 1 > max(1, most_requests)
            assert many or (tokens and before and sum(sizes[i] for i in before) + sizes[index] > most_tokens)
    if not requests and not tokens:
        assert clock.now == 0


@pytest.mark.parametrize(("used", "times"), [(None, [0, 0, 60, 60]), ([10] * 4, [0] * 4)])
def test_tokens_that_were_not_used_make_room(used, times):
    clock = Clock()
    assert times_of(limiter_of(clock, tokens=100), clock, [50] * 4, used) == times


def test_a_pause_that_the_endpoint_asks_for_stops_all():
    clock = Clock()
    limiter = limiter_of(clock)
    limiter.pause(5.0)
    limiter.pause(2.0)  # a shorter one does not end it
    assert times_of(limiter, clock, [1, 1, 1]) == [5, 5, 5]


@pytest.mark.parametrize(
    ("headers", "seconds"),
    [
        ({}, None),
        ({"retry-after-ms": "250", "retry-after": "9"}, 0.25),
        *(({"retry-after": text}, float(text)) for text in ("7", "0.5")),
        *(({"retry-after": text}, 0.0) for text in ("-3", "Thu, 01 Jan 1970 00:00:00 GMT")),
        *(({"retry-after": text}, None) for text in ("soon", "nan")),
    ],
)
def test_what_a_server_asks_to_wait(headers, seconds):
    assert retry_after(headers) == seconds


def test_a_date_to_wait_for():
    assert 55 < retry_after({"retry-after": email.utils.formatdate(time.time() + 60, usegmt=True)}) <= 61


def test_a_server_that_asks_to_wait_is_not_asked_before(connected):
    """The fake server records when each attempt arrives."""
    with connected(Faults(limited=0.5, retry_after=0.05, seed=1), concurrency=4) as (fake, client):
        assert all(answer.text for answer in ask(client, *map(str, range(12))))
        assert client.tally.retried > 2
        by_key = {}
        for when, key, status in fake.log:
            by_key.setdefault(key, []).append((when, status))
    waits = [b[0] - a[0] for seen in by_key.values() for a, b in itertools.pairwise(seen) if a[1] == 429]
    assert len(waits) == client.tally.retried
    assert min(waits) >= 0.05


@pytest.mark.parametrize(
    ("after", "asked"),
    [*((word, 0) for word in ("0", "-5", "1e-9", "0.001", "Thu, 01 Jan 1970 00:00:00 GMT")), ("9", 9)],
)
def test_a_wait_is_the_ordinary_one_or_what_the_server_asks_for_where_that_is_longer(after, asked):
    """Otherwise one endpoint that is always busy would be asked hundreds of times per second."""
    waits = Retries(EndpointConfig(model="m", base_url="http://127.0.0.1:1/v1", backoff=0.5))
    for attempt in range(1, 12):
        state = tenacity.RetryCallState(tenacity.AsyncRetrying(), None, (), {})
        state.attempt_number = attempt
        state.set_exception((TransientError, TransientError("429", after=retry_after({"retry-after": after})), None))
        assert max(0.5 * min(2 ** (attempt - 1), 64) / 2, asked) <= waits._wait(state) <= 0.5 * 64


def test_a_client_keeps_its_limits(connected):
    with connected(requests_per_minute=3000, window=0.1, concurrency=32) as (fake, client):
        started = time.monotonic()
        ask(client, *map(str, range(20)))
        times = sorted(when for when, _, _ in fake.log)
    # Five in any tenth of a second.
    assert all(times[index] - started >= index // 5 * 0.1 for index in range(20))


def test_concurrency_is_bounded(connected):
    with connected(Faults(delay=0.01), concurrency=3) as (fake, client):
        ask(client, *map(str, range(12)))
        assert fake.most_at_once == 3


def test_more_attempts_than_a_double_has_powers_of_two_end_in_an_answer():
    """A doubling wait overflowed at the 1,025th attempt, and ended the job."""
    attempts = 0

    async def attempt():
        nonlocal attempts
        attempts += 1
        if attempts <= 1100:
            raise TransientError("503", after=0.0 if attempts < 1030 else None)
        return "an answer"

    async def failed(_):
        pass

    endpoint = EndpointConfig(model="m", base_url="http://127.0.0.1:1/v1", backoff=1e-9)
    assert asyncio.run(Retries(endpoint).run(attempt, failed)) == "an answer"
    assert attempts == 1101
