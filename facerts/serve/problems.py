"""What goes wrong to JSON, the same form everywhere."""

from __future__ import annotations

import logging
from collections.abc import Sequence

from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse, Response
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect

from facerts.errors import ModelError
from facerts.serve.answers import Picture, Problem, in_words
from facerts.serve.observer import GONE
from facerts.serve.refusal import Code, RefusedError

LOG = logging.getLogger("facerts.serve")
OF_STATUS: dict[int, Code] = {404: "not_found", 405: "method_not_allowed"}


def problem(code: Code, text: str, *, pictures: Sequence[Picture] | None = None) -> Response:
    """An answer that says what was wrong."""
    refusal = RefusedError(code, text)
    body = Problem(error=text, code=code, pictures=None if pictures is None else list(pictures))
    return Response(
        body.model_dump_json(),
        status_code=refusal.status,
        headers=refusal.headers,
        media_type=JSONResponse.media_type,
    )


def add_problems(app: FastAPI) -> None:
    """Answer exceptions."""

    @app.exception_handler(RefusedError)
    async def refused(_: Request, error: RefusedError) -> Response:
        return problem(error.code, str(error))

    @app.exception_handler(RequestValidationError)
    async def invalid(_: Request, error: RequestValidationError) -> Response:
        return problem("invalid", in_words(error.errors()))

    @app.exception_handler(HTTPException)
    async def unknown(_: Request, error: HTTPException) -> Response:
        answer = problem(OF_STATUS.get(error.status_code, "bad_request"), str(error.detail))
        answer.status_code = error.status_code
        answer.headers.update(error.headers or {})
        return answer

    @app.exception_handler(ClientDisconnect)
    async def gone(_: Request, __: ClientDisconnect) -> Response:
        # Nobody reads it.
        return Response(status_code=GONE)

    @app.exception_handler(ModelError)
    async def failed(_: Request, error: ModelError) -> Response:
        # It names files of this machine, which are nobody else's business.
        LOG.error("%s", error)
        return problem("internal", "the model failed on this picture; the log of the service says why")

    @app.exception_handler(Exception)
    async def broken(_: Request, __: Exception) -> Response:
        # The exception goes on to the log.
        return problem("internal", "the service failed; its log says why")
