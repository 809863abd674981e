"""Questions about streams that requests bring: `POST /v1/decisions`, and in an older form `POST /v1/systemone`."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

import fastapi

from prism_jax.agent.service import system_one
from prism_jax.agent.service.form import (
    Answered,
    Asked,
    Decision,
    DecisionsRequest,
    ErrorBody,
    FormError,
    asked_of,
    decision_of,
)
from prism_jax.agent.service.http import ApiError, Limits, Served, make_base
from prism_jax.agent.service.tokens import Tokens


def make_app(
    served: Served[Asked, Answered], name: str, *, tokens: Tokens | None = None, limits: Limits | None = None
) -> fastapi.FastAPI:
    """The application before what answers; `name` is the model's.

    Without tokens it answers requests to loopback names alone.
    """
    app = make_base(served, tokens or Tokens(()), limits or Limits())
    add_questions(app, served.ask, name)
    return app


def add_questions(
    app: fastapi.FastAPI, ask: Callable[[Asked, fastapi.Request], Awaitable[Answered]], name: str
) -> None:
    """Adds the routes of questions about streams that requests bring; `name` is the model's."""
    errors: dict[int | str, dict[str, Any]] = {
        status: {"model": ErrorBody} for status in (401, 404, 413, 422, 429, 503)
    }

    def check_model(model: str) -> None:
        if model != name:
            raise ApiError(404, f"model: found {model!r:.80}, expected {name!r}", param="model", code="model_not_found")

    async def answered(asked: Asked, place: str, request: fastapi.Request) -> Answered:
        """The answer to what is asked; `place` is where the request has its events."""
        try:
            return await ask(asked, request)
        except FormError:
            raise
        except ValueError as error:
            words = f"{place} exceeds the context window: {str(error).replace('input[', f'{place}[', 1)}"
            raise ApiError(413, words, param=place, code="context_length_exceeded") from None

    @app.post("/v1/decisions", responses=errors)
    async def decide(body: DecisionsRequest, request: fastapi.Request) -> Decision:
        """The probabilities that help is needed, and that an offer would be accepted."""
        check_model(body.model)
        asked = asked_of(body, request.state.caller)
        return decision_of(body, None if asked is None else await answered(asked, "input", request))

    @app.post("/v1/systemone", responses=errors)
    async def system_one_answers(
        body: system_one.SystemOneRequest, request: fastapi.Request
    ) -> system_one.SystemOneAnswers:
        """The same probabilities, in the form of System One."""
        check_model(body.model)
        asked = system_one.asked_of(body, request.state.caller)
        return system_one.answers_of(body, await answered(asked, "state", request))

    @app.get("/v1/models", responses={401: {"model": ErrorBody}})
    async def models() -> dict[str, object]:
        """The one model that answers here, as both forms list it."""
        listed = {"name": name, "description": "Need for help, and acceptance of offers.", "release_date": "1970-01-01"}
        data = [{"id": name, "object": "model", "created": 0, "owned_by": "prism_jax"}]
        return {"object": "list", "data": data, "models": [listed]}
