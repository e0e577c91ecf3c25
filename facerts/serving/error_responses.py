"""Errors as responses: requests that are not answered with scores, and the JSON that they get instead."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from typing import Any

from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse, Response
from fastapi.routing import APIRoute
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect

from facerts.errors import Error, ModelError, problem_text, problems_text
from facerts.serving.schemas import STATUS, ImageResult, Problem

LOG = logging.getLogger("facerts.serving")
# What Starlette raises by itself.
CODES = {404: "not_found", 405: "method_not_allowed"}
# nginx's status for a client that closed the connection before it was answered.
CLIENT_CLOSED_REQUEST = 499
# Of the responses with a code; a client may try a busy service again after a second.
HEADERS = {"unauthorized": {"WWW-Authenticate": "Bearer"}, "busy": {"Retry-After": "1"}}


# What an option must be where pydantic finds something else, by the beginning of its problem's type.
WANTED = {
    "float": "a number",
    "finite": "a number",
    "int": "a whole number",
    "bool": "true or false",
    "greater_than_equal": "at least {ge:g}",
    "greater_than": "above {gt:g}",
    "less_than_equal": "at most {le:g}",
    "less_than": "below {lt:g}",
}


class RequestError(Error):
    """A request that gets an error instead of scores, maybe for its ``images``; the message is for whoever sent it."""

    def __init__(self, code: str, message: str, images: list[ImageResult] | None = None) -> None:
        super().__init__(message)
        self.code = code
        self.images = images


def error_response(code: str, message: str, images: list[ImageResult] | None = None) -> Response:
    """The response to a request that failed."""
    problem = Problem(error=message, code=code, images=images)
    return Response(problem.model_dump_json(), STATUS[code], HEADERS.get(code), JSONResponse.media_type)


def options_text(problems: Sequence[Mapping[str, Any]]) -> str:
    """What is wrong with the options of a request, in one sentence."""
    return problems_text(problems, _option_text)


def _option_text(problem: Mapping[str, Any]) -> str:
    kind, name = problem["type"], problem["loc"][-1] if problem["loc"] else ""
    if kind == "extra_forbidden":
        return f"there is no option {name!r}"
    wanted = next((text for begin, text in WANTED.items() if kind.startswith(begin)), None)
    if wanted is None:
        return problem_text(problem)
    return f"{name} must be {wanted.format(**problem.get('ctx', {}))}, not {problem['input']!r:.50}"


def add_exception_handlers(app: FastAPI) -> None:
    """Turn exceptions into responses."""

    def addresses() -> str:
        routes = [route for route in app.routes if isinstance(route, APIRoute) and route.path.startswith("/v1/")]
        return ", ".join(f"{min(route.methods or ())} {route.path}" for route in routes)

    @app.exception_handler(RequestError)
    async def request_error(_: Request, error: RequestError) -> Response:
        return error_response(error.code, str(error), error.images)

    @app.exception_handler(RequestValidationError)
    async def validation_error(_: Request, error: RequestValidationError) -> Response:
        return error_response("invalid", options_text(error.errors()))

    @app.exception_handler(HTTPException)
    async def http_error(request: Request, error: HTTPException) -> Response:
        path, message = request.url.path, str(error.detail)
        if error.status_code == 404:
            message = f"no such address; there are {addresses()}"
            message += "; videos need facerts serve --video" * (path == "/v1/video")
        elif error.status_code == 405:
            message = f"{path} takes {(error.headers or {}).get('Allow')}, not {request.method}"
        response = error_response(CODES.get(error.status_code, "bad_request"), message)
        response.status_code = error.status_code
        response.headers.update(error.headers or {})
        return response

    @app.exception_handler(ClientDisconnect)
    async def client_disconnected(_: Request, __: ClientDisconnect) -> Response:
        # Nobody reads it.
        return Response(status_code=CLIENT_CLOSED_REQUEST)

    @app.exception_handler(ModelError)
    async def model_error(_: Request, error: ModelError) -> Response:
        # The message names files of this machine, which are not the client's business.
        LOG.error("%s", error)
        return error_response("internal", "the model failed on this image; the service's log says why")

    @app.exception_handler(Exception)
    async def unexpected_error(_: Request, __: Exception) -> Response:
        # Starlette raises the exception again, and so it reaches the log.
        return error_response("internal", "the service failed; its log says why")
