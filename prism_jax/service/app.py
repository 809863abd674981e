"""The server of decisions without state: `POST /v1/decisions`."""

from __future__ import annotations

from typing import Any

import fastapi

from prism_jax.service.form import (
    Answered,
    Asked,
    Decision,
    DecisionsRequest,
    ErrorBody,
    FormError,
    asked_of,
    decision_of,
)
from prism_jax.service.http import ApiError, Limits, Served, make_base
from prism_jax.service.tokens import Tokens


def make_app(
    served: Served[Asked, Answered], name: str, *, tokens: Tokens | None = None, limits: Limits | None = None
) -> fastapi.FastAPI:
    """The application before what answers; `name` is the model's.

    Without tokens it answers requests to loopback names alone.
    """
    app = make_base(served, tokens or Tokens(()), limits or Limits())
    errors: dict[int | str, dict[str, Any]] = {
        status: {"model": ErrorBody} for status in (401, 404, 413, 422, 429, 503)
    }

    @app.post("/v1/decisions", responses=errors)
    async def decide(body: DecisionsRequest, request: fastapi.Request) -> Decision:
        """The probabilities that help is needed, and that an offer would be accepted."""
        if body.model != name:
            raise ApiError(
                404, f"model: found {body.model!r:.80}, expected {name!r}", param="model", code="model_not_found"
            )
        asked = asked_of(body, request.state.caller)
        try:
            return decision_of(body, None if asked is None else await served.ask(asked, request))
        except FormError:
            raise
        except ValueError as error:
            words = f"input exceeds the context window: {error}"
            raise ApiError(413, words, param="input", code="context_length_exceeded") from None

    @app.get("/v1/models", responses={401: {"model": ErrorBody}})
    async def models() -> dict[str, object]:
        """The one model that answers here."""
        return {"object": "list", "data": [{"id": name, "object": "model", "created": 0, "owned_by": "prism_jax"}]}

    return app
