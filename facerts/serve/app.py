"""The service as an ASGI application: its routes."""

from __future__ import annotations

import secrets
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Annotated, Any

from fastapi import Depends, FastAPI, Query, Request
from fastapi.responses import HTMLResponse, JSONResponse, Response
from fastapi.security import HTTPAuthorizationCredentials, HTTPBearer

from facerts.images import CROP_SIZE
from facerts.images.align import TEMPLATE
from facerts.scoring import Scorer
from facerts.serve.answers import Health, Limits, Model, Options, Problem, Scores, merge_options
from facerts.serve.guard import Guard
from facerts.serve.metrics import Metrics
from facerts.serve.observer import Observer
from facerts.serve.pages import load_page
from facerts.serve.patience import while_wanted
from facerts.serve.problems import add_problems, problem
from facerts.serve.refusal import STATUS, Code, RefusedError
from facerts.serve.service import Service
from facerts.serve.settings import Settings
from facerts.serve.uploads import FIELD, FORM, PICTURE_TYPES, read_uploads
from facerts.serve.visitors import Visitors
from facerts.version import __version__

if TYPE_CHECKING:
    from starlette.types import ASGIApp

PAGES = {"/": "page.html", "/docs": "reference.html"}
# What scoring may answer besides scores, beyond what every route may.
TURNED_AWAY: tuple[Code, ...] = (
    *("bad_request", "foreign_origin", "too_slow", "too_large", "unsupported_type"),
    *("unusable_pictures", "internal", "busy", "timeout"),
)


def create_app(scorer: Scorer, settings: Settings) -> ASGIApp:
    """The service as an application for any ASGI server.

    Args:
        scorer: the model, with a detector where pictures are photos.
        settings: limits and defaults.

    Raises:
        ModelError: the model has no such threshold, or no quality to accept faces by.
    """
    embedder = scorer.embedder
    metrics = Metrics(__version__, embedder.name, embedder.sha256)
    service = Service(scorer, settings, metrics)

    @asynccontextmanager
    async def lifespan(_: FastAPI) -> AsyncIterator[None]:
        yield
        await service.close()

    app = FastAPI(
        title="facerts",
        summary="Faces in pictures, and how far to trust each.",
        version=__version__,
        lifespan=lifespan,
        redirect_slashes=False,
        # FastAPI's pages load scripts from elsewhere; /docs does not.
        docs_url=None,
        redoc_url=None,
        openapi_url=None,
    )
    _add_pages(app)
    _add_health(app, service)
    _add_api(app, service)
    add_problems(app)
    guard = Guard(Visitors(app, settings), settings)
    metrics.ask(queue=lambda: service.queued, working=lambda: service.working, held=lambda: guard.held)
    return Observer(guard, metrics)


def _add_pages(app: FastAPI) -> None:
    for path, name in PAGES.items():
        page = load_page(name)
        answer = HTMLResponse(page.html, headers={"Content-Security-Policy": page.policy})
        app.add_api_route(path, lambda answer=answer: answer, include_in_schema=False)
    app.add_api_route("/openapi.json", lambda: JSONResponse(app.openapi()), include_in_schema=False)


def _add_health(app: FastAPI, service: Service) -> None:
    @app.get("/healthz", operation_id="healthz", tags=["health"], responses=_documented())
    async def healthz() -> Health:
        """Whether the process is alive."""
        return Health(status="ok")

    @app.get("/readyz", operation_id="readyz", tags=["health"], responses=_documented("busy"))
    async def readyz() -> Health:
        """Whether the next request would be taken."""
        if service.full:
            raise RefusedError("busy", "as many requests as may be are being worked on")
        return Health(status="ready")


def _add_api(app: FastAPI, service: Service) -> None:
    settings = service.settings
    guarded: dict[str, Any] = {}
    if settings.token is not None:
        guarded = {"dependencies": [Depends(_authorise(settings.token))]}

    @app.get(
        "/metrics",
        operation_id="metrics",
        tags=["health"],
        response_class=Response,
        responses={
            200: {"content": {"text/plain": {"schema": {"type": "string"}}}},
            **_documented("unauthorized"),
        },
        **guarded,
    )
    async def metrics() -> Response:
        """Numbers for Prometheus."""
        return Response(service.metrics.text(), media_type=service.metrics.content_type)

    @app.get("/v1/model", operation_id="model", tags=["v1"], responses=_documented("unauthorized"), **guarded)
    async def model() -> Model:
        """Which model scores, its thresholds with the errors that they make, and what the service takes."""
        return _model(service)

    @app.post(
        "/v1/score",
        operation_id="score",
        tags=["v1"],
        response_model=Scores,
        responses=_documented("unauthorized", *TURNED_AWAY),
        openapi_extra={"requestBody": _request_body(settings)},
        **guarded,
    )
    async def score(request: Request, options: Annotated[Options, Query()]) -> Response:
        """Score the faces of one picture or several.

        A picture without a face is not an error. Of several pictures those that cannot be read have an `error` in
        their place; where that is all of them, the answer is 422 with the same list.
        """
        service.check_place()
        # Without a place: who sends slowly, or never ends, would keep it from others.
        uploads, fields = await read_uploads(
            request, max_pictures=settings.max_pictures, max_fields=len(Options.model_fields)
        )
        merged = merge_options(options, request.query_params.keys(), fields)
        with service.place():
            scores = await while_wanted(request, service.score(uploads, merged), settings.timeout)
        if all(picture.error is not None for picture in scores.pictures):
            text = scores.pictures[0].error or ""
            if len(uploads) > 1:
                text = f"none of the {len(uploads)} pictures could be scored; the first: {text}"
            return problem("unusable_pictures", text, pictures=scores.pictures)
        return Response(scores.model_dump_json(), media_type=JSONResponse.media_type)


def _authorise(token: str) -> Any:
    expected = token.encode("ascii")

    async def authorise(
        given: Annotated[HTTPAuthorizationCredentials | None, Depends(HTTPBearer(auto_error=False))],
    ) -> None:
        # Header fields are bytes that were read as Latin-1.
        if given is None or not secrets.compare_digest(given.credentials.encode("latin-1"), expected):
            raise RefusedError("unauthorized", "this service needs its token: Authorization: Bearer TOKEN")

    return authorise


def _model(service: Service) -> Model:
    embedder, settings = service.scorer.embedder, service.settings
    detector = service.scorer.detector
    return Model(
        name=embedder.name,
        sha256=embedder.sha256,
        detector=None if detector is None else type(detector).__name__,
        has_quality=service.has_quality,
        min_quality=service.judge.min_quality,
        template=TEMPLATE.tolist(),
        template_size=CROP_SIZE,
        limits=Limits(
            bytes=settings.max_bytes,
            pixels=settings.max_pixels,
            pictures=settings.max_pictures,
            faces=settings.max_faces,
        ),
        description=embedder.description,
    )


def _documented(*codes: Code) -> dict[int | str, dict[str, Any]]:
    """Answers other than the one that was asked for, for the schema."""
    return {
        STATUS[code]: {"model": Problem, "description": code.replace("_", " ").capitalize()}
        for code in (*codes, "wrong_host")
    }


def _request_body(settings: Settings) -> dict[str, Any]:
    file = {"type": "string", "format": "binary"}
    pictures = {"type": "array", "items": file, "minItems": 1, "maxItems": settings.max_pictures}
    options = Options.model_json_schema()["properties"]
    form = {
        "type": "object",
        "properties": {FIELD: pictures, **{name: _without_null(told) for name, told in options.items()}},
        "required": [FIELD],
        "additionalProperties": False,
    }
    return {
        "required": True,
        "content": {FORM: {"schema": form}, **{kind: {"schema": file} for kind in PICTURE_TYPES}},
    }


def _without_null(schema: dict[str, Any]) -> dict[str, Any]:
    """Of an option: a field of a form is there or not, but never null."""
    told = {key: value for key, value in schema.items() if key not in ("anyOf", "default")}
    return told | next((kind for kind in schema.get("anyOf", ()) if kind["type"] != "null"), {})
