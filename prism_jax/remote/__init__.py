"""One client of models behind an OpenAI-compatible endpoint: cached, budgeted, limited, redacted and resumable.

Belongs here: endpoints and their prices, requests and answers, the cache, limits, retries, validated answers, jobs over
many items, and a fake endpoint for tests and the offline demo.
Does not belong here: prompts, labels, judgements. Imports runtime only; needs the extra `prism_jax[remote]`.
"""
