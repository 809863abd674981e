"""How the tests of the remote client ask: endpoints that cost money and are retried at once."""

import asyncio

from prism_jax.remote.endpoints import EndpointConfig
from prism_jax.remote.requests import Message, Request


def echo(body):
    return f"heard {body['messages'][-1]['content']}"


def endpoint_of(fake, **changes):
    """An endpoint whose million tokens cost one and two dollars, and that is retried at once."""
    options = {"input_price": 1.0, "output_price": 2.0, "backoff": 0.005, "patience": 20.0, "max_tokens": 50}
    return EndpointConfig("m", fake.url, **(options | changes))


def ask(client, *texts):
    """Asks for all texts at once, and returns the answers in their order."""

    async def ask_all():
        return await asyncio.gather(*(client.ask(Request((Message("user", text),))) for text in texts))

    return asyncio.run(ask_all())
