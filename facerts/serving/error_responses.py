"""Errors as responses: requests that are not answered with scores, and the JSON that they get instead."""

from __future__ import annotations

import logging

from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse, Response
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect

from facerts.errors import Error, ModelError, problems_text
from facerts.serving.schemas import STATUS, ImageResult, Problem

LOG = logging.getLogger("facerts.serving")
# What Starlette raises by itself.
CODES = {404: "not_found", 405: "method_not_allowed"}
NO_ADDRESS = "no such address; POST /v1/score scores images, and GET /v1/model describes the service"
# nginx's status for a client that closed the connection before it was answered.
CLIENT_CLOSED_REQUEST = 499
# Of the responses with a code; a client may try a busy service again after a second.
HEADERS = {"unauthorized": {"WWW-Authenticate": "Bearer"}, "busy": {"Retry-After": "1"}}


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


def add_exception_handlers(app: FastAPI) -> None:
    """Turn exceptions into responses."""

    @app.exception_handler(RequestError)
    async def request_error(_: Request, error: RequestError) -> Response:
        return error_response(error.code, str(error), error.images)

    @app.exception_handler(RequestValidationError)
    async def validation_error(_: Request, error: RequestValidationError) -> Response:
        return error_response("invalid", problems_text(error.errors()))

    @app.exception_handler(HTTPException)
    async def http_error(_: Request, error: HTTPException) -> Response:
        message = NO_ADDRESS if error.status_code == 404 else str(error.detail)
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
