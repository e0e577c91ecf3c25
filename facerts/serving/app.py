"""The service as an ASGI application: its routes and pages."""

from __future__ import annotations

import inspect
import secrets
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager
from dataclasses import fields
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, get_type_hints

from fastapi import Depends, FastAPI, Query, Request
from fastapi.responses import JSONResponse, Response
from fastapi.security import HTTPAuthorizationCredentials, HTTPBearer

from facerts.images import CROP_SIZE
from facerts.images.align import TEMPLATE
from facerts.scoring import Row, Scorer
from facerts.serving.access import AccessControl
from facerts.serving.body_limits import BodyLimits, cancel_if_abandoned
from facerts.serving.error_responses import RequestError, add_exception_handlers
from facerts.serving.prometheus import Metrics, RequestMonitor
from facerts.serving.schemas import (
    STATUS,
    GalleryInfo,
    Health,
    ModelInfo,
    ModelPartInfo,
    Problem,
    RequestLimits,
    Schema,
    ThresholdOptions,
    body_schema,
)
from facerts.serving.service import Service, gallery_errors
from facerts.serving.settings import Settings
from facerts.serving.uploads import Noun, read_uploads
from facerts.version import __version__
from facerts.web.site import STATIC

if TYPE_CHECKING:
    from starlette.types import ASGIApp

Work = Callable[..., Coroutine[Any, Any, Schema]]

# Of the files that web/ builds: those of the service's pages, by path.
PAGES = {"/": "service.html", "/docs": "reference.html"}
FILES = {**PAGES, **{f"/{name}": name for name in ("page.css", "service.js", "reference.js")}}
MEDIA_TYPES = {".html": "text/html", ".css": "text/css", ".js": "text/javascript"}
PAGE_POLICY = (
    "default-src 'none'; style-src 'self'; script-src 'self'; connect-src 'self'; "
    # Images that the browser itself has read, and the icon.
    "img-src blob: data:; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)
# Errors of scoring, besides those that every route may return.
SCORE_ERRORS = (
    *("bad_request", "foreign_origin", "too_slow", "too_large", "unsupported_type"),
    *("internal", "busy", "timeout"),
)


def build(scorer: Scorer, settings: Settings) -> ASGIApp:
    """The service as an application for any ASGI server.

    Examples:
        >>> import facerts
        >>> from facerts.serving import Settings, build
        >>> scorer = facerts.load(detector="none")
        >>> app = build(scorer, Settings(keep=0.95))  # for uvicorn or any other ASGI server
        >>> callable(app)
        True
    """
    embedder = scorer.recognizer
    metrics = Metrics(__version__, embedder.name, embedder.sha256)
    service = Service(scorer, settings, metrics)

    @asynccontextmanager
    async def lifespan(_: FastAPI) -> AsyncIterator[None]:
        yield
        await service.close()

    app = FastAPI(
        title="facerts",
        summary="Faces in images, and how far to trust each.",
        version=__version__,
        lifespan=lifespan,
        redirect_slashes=False,
        generate_unique_id_function=lambda route: route.name,
        # FastAPI's pages load scripts from elsewhere; /docs does not.
        docs_url=None,
        redoc_url=None,
        openapi_url=None,
    )
    _add_pages(app)
    _add_health(app, service)
    _add_api(app, service)
    add_exception_handlers(app)
    limits = BodyLimits(AccessControl(app, settings), settings)
    metrics.queue.set_function(lambda: service.queued)
    metrics.working.set_function(lambda: service.working)
    metrics.held.set_function(lambda: limits.held)
    return RequestMonitor(limits, metrics)


def _add_pages(app: FastAPI) -> None:
    for path, name in FILES.items():
        headers = {"Content-Security-Policy": PAGE_POLICY} if path in PAGES else None
        response = Response((STATIC / name).read_bytes(), media_type=MEDIA_TYPES[Path(name).suffix], headers=headers)
        app.add_api_route(path, lambda response=response: response, include_in_schema=False)
    app.add_api_route("/openapi.json", lambda: JSONResponse(app.openapi()), include_in_schema=False)


def _add_health(app: FastAPI, service: Service) -> None:
    @app.get("/healthz", tags=["health"], responses=_error_schemas())
    async def healthz() -> Health:
        """Whether the process is alive."""
        return Health(status="ok")

    @app.get("/readyz", tags=["health"], responses=_error_schemas("busy"))
    async def readyz() -> Health:
        """Whether the service would take the next request."""
        service.check_capacity()
        return Health(status="ready")


def _add_api(app: FastAPI, service: Service) -> None:
    settings = service.settings
    guarded = [] if settings.token is None else [Depends(_token_check(settings.token))]

    @app.get(
        "/metrics",
        tags=["health"],
        response_class=Response,
        responses={
            200: {"content": {"text/plain": {"schema": {"type": "string"}}}},
            **_error_schemas("unauthorized"),
        },
        dependencies=guarded,
    )
    async def metrics() -> Response:
        """Metrics for Prometheus."""
        return Response(service.metrics.text(), media_type=service.metrics.content_type)

    @app.get("/v1/model", tags=["v1"], responses=_error_schemas("unauthorized", "busy"), dependencies=guarded)
    def model() -> ModelInfo:  # in a thread: a gallery's threshold may take long
        """The model, its thresholds with their error rates, and the limits of a request."""
        return _model_info(service)

    def add(work: Work, images: tuple[int, int] = (1, settings.max_images), noun: Noun = "image") -> None:
        """A route that answers with what the work returns, and has its name and description."""
        name, types = work.__name__, get_type_hints(work)
        options_type = types["options"]

        async def answer(request: Request, options: ThresholdOptions) -> Response:
            service.check_capacity()
            # A request takes a place only once it is complete: slow or endless ones would keep it from others.
            uploads, options = await read_uploads(request, options, maximum=images[1], noun=noun)
            with service.place():
                result = await cancel_if_abandoned(request, work(uploads, options), settings.timeout)
            return Response(result.model_dump_json(), media_type=JSONResponse.media_type)

        answer.__annotations__["options"] = Annotated[options_type, Query()]
        app.add_api_route(
            f"/v1/{name}",
            answer,
            methods=["POST"],
            name=name,
            description=inspect.getdoc(work),
            tags=["v1"],
            response_model=types["return"],
            responses=_error_schemas("unauthorized", f"unusable_{noun}{'s' * (noun == 'image')}", *SCORE_ERRORS),
            openapi_extra={"requestBody": body_schema(options_type, noun, *images)},
            dependencies=guarded,
        )

    add(service.score)
    add(service.verify, (2, 2))
    add(service.search)
    if settings.video:
        add(service.video, (1, 1), "video")


def _token_check(token: str) -> Any:
    expected = token.encode("ascii")

    async def check_token(
        given: Annotated[HTTPAuthorizationCredentials | None, Depends(HTTPBearer(auto_error=False))],
    ) -> None:
        # Starlette decodes headers as Latin-1.
        if given is None or not secrets.compare_digest(given.credentials.encode("latin-1"), expected):
            raise RequestError("unauthorized", "this service requires a token: Authorization: Bearer TOKEN")

    return check_token


def _model_info(service: Service) -> ModelInfo:
    scorer, settings, gallery = service.scorer, service.settings, service.gallery
    found = None
    if gallery is not None:
        with gallery_errors():
            content = gallery.summary()
            threshold = gallery.threshold(settings.fpir, scorer.recognizer).cosine
        found = GalleryInfo.of(
            content,
            fpir=settings.fpir,
            threshold=threshold,
            min_quality=service.search_row_builder.min_quality,
        )
    return ModelInfo(
        quality=ModelPartInfo.of(scorer.quality) if service.has_quality else None,
        recognizer=ModelPartInfo.of(scorer.recognizer),
        detector=None if scorer.detector is None else scorer.detector_name,
        min_quality=service.row_builder.min_quality,
        fmr=None if service.rule is None else service.rule.fmr,
        gallery=found,
        template=TEMPLATE.tolist(),
        template_size=CROP_SIZE,
        limits=RequestLimits(
            **{name: getattr(settings, f"max_{name}") for name in RequestLimits.model_fields}
            | ({} if settings.video else {"seconds": None})
        ),
        columns=[field.name for field in fields(Row)],
    )


def _error_schemas(*codes: str) -> dict[int | str, dict[str, object]]:
    """The error responses of a route, for the OpenAPI schema."""
    return {
        STATUS[code]: {"model": Problem, "description": code.replace("_", " ").capitalize()}
        for code in (*codes, "wrong_host", "headers_too_large")
    }
