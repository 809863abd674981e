"""One client of models behind an OpenAI-compatible endpoint: cached, budgeted, limited, redacted and resumable.

Belongs here: endpoints and their prices, requests and answers, the cache, limits, retries, validated answers, jobs over
many items, and a fake endpoint for tests and the offline demo.
Does not belong here: prompts, labels, judgements. Imports runtime only; needs the extra `prism_jax[remote]`.

Where to change what:
- how an endpoint is asked, retried and limited: `client.py`; `of_exchange` in `failures.py` says what each failure
  means, `pacing.py` when it is asked again; the table in docs/judges.md
- what is kept of an answer: `Answer` in `requests.py`, the table and `VERSION` in `cache_file.py`
- the price of a model: `PRICES` in `prices.py`, with the month in which you read it
- a fault of the fake endpoint: `Faults` in `fake.py`
"""
