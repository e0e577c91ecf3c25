"""The service as an ASGI application: its routes and pages."""

from __future__ import annotations

import base64
import hashlib
import inspect
import re
import secrets
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager
from importlib import resources
from typing import TYPE_CHECKING, Annotated, Any, get_type_hints

from fastapi import Depends, FastAPI, Query, Request
from fastapi.responses import HTMLResponse, JSONResponse, Response
from fastapi.security import HTTPAuthorizationCredentials, HTTPBearer

from facerts.images import CROP_SIZE
from facerts.images.align import TEMPLATE
from facerts.scoring import Scorer
from facerts.serving.access import AccessControl
from facerts.serving.body_limits import BodyLimits, cancel_if_abandoned
from facerts.serving.error_responses import RequestError, add_exception_handlers
from facerts.serving.prometheus import Metrics, RequestMonitor
from facerts.serving.schemas import (
    STATUS,
    GalleryInfo,
    Health,
    ModelInfo,
    Problem,
    RequestLimits,
    Schema,
    ThresholdOptions,
    body_schema,
)
from facerts.serving.service import Service, gallery_errors
from facerts.serving.settings import Settings
from facerts.serving.uploads import Noun, read_uploads
from facerts.serving.video_requests import VideoRequests
from facerts.version import __version__

if TYPE_CHECKING:
    from starlette.types import ASGIApp

Work = Callable[..., Coroutine[Any, Any, Schema]]

PAGES = {"/": "page.html", "/docs": "reference.html"}
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
    videos = VideoRequests(service) if settings.video else None

    @asynccontextmanager
    async def lifespan(_: FastAPI) -> AsyncIterator[None]:
        yield
        if videos is not None:
            await videos.close()
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
    _add_api(app, service, videos)
    add_exception_handlers(app)
    limits = BodyLimits(AccessControl(app, settings), settings)
    metrics.queue.set_function(lambda: service.queued)
    metrics.working.set_function(lambda: service.working)
    metrics.held.set_function(lambda: limits.held)
    return RequestMonitor(limits, metrics)


def _add_pages(app: FastAPI) -> None:
    for path, name in PAGES.items():
        html = resources.files("facerts.serving").joinpath(name).read_text(encoding="utf-8")
        page = HTMLResponse(html, headers={"Content-Security-Policy": _content_security_policy(html)})
        app.add_api_route(path, lambda page=page: page, include_in_schema=False)
    app.add_api_route("/openapi.json", lambda: JSONResponse(app.openapi()), include_in_schema=False)


def _content_security_policy(html: str) -> str:
    """A policy under which a page's own style and script run, and no others."""
    return (
        f"default-src 'none'; style-src {_hashes(html, 'style')}; script-src {_hashes(html, 'script')}; "
        # Images that the browser itself has read, and the icon.
        "connect-src 'self'; img-src blob: data:; "
        "base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
    )


def _hashes(html: str, tag: str) -> str:
    """Hashes of the elements' text, as the browser computes them."""
    texts = re.findall(rf"<{tag}>(.*?)</{tag}>", html, re.DOTALL)
    hashes = [base64.b64encode(hashlib.sha256(text.encode()).digest()).decode() for text in texts]
    return " ".join(f"'sha256-{value}'" for value in hashes)


def _add_health(app: FastAPI, service: Service) -> None:
    @app.get("/health", include_in_schema=False)
    @app.get("/healthz", tags=["health"], responses=_error_schemas())
    async def healthz() -> Health:
        """Whether the process is alive."""
        return Health(status="ok")

    @app.get("/readyz", tags=["health"], responses=_error_schemas("busy"))
    async def readyz() -> Health:
        """Whether the service would take the next request."""
        service.check_capacity()
        return Health(status="ready")


def _add_api(app: FastAPI, service: Service, videos: VideoRequests | None) -> None:
    settings = service.settings
    guarded: dict[str, Any] = {}
    if settings.token is not None:
        guarded = {"dependencies": [Depends(_token_check(settings.token))]}

    @app.get(
        "/metrics",
        tags=["health"],
        response_class=Response,
        responses={
            200: {"content": {"text/plain": {"schema": {"type": "string"}}}},
            **_error_schemas("unauthorized"),
        },
        **guarded,
    )
    async def metrics() -> Response:
        """Metrics for Prometheus."""
        return Response(service.metrics.text(), media_type=service.metrics.content_type)

    @app.get("/v1/model", tags=["v1"], responses=_error_schemas("unauthorized", "busy"), **guarded)
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
            responses=_error_schemas(
                "unauthorized", f"unusable_{noun}{'s' * (noun == 'image')}", *SCORE_ERRORS
            ),
            openapi_extra={"requestBody": body_schema(options_type, noun, *images)},
            **guarded,
        )

    add(service.score)
    add(service.verify, (2, 2))
    add(service.search)
    if videos is not None:
        add(videos.video, (1, 1), "video")


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
    embedder = scorer.recognizer
    found = None
    if gallery is not None:
        with gallery_errors():
            content, threshold = gallery.summary(), gallery.threshold(settings.fpir).cosine
        found = GalleryInfo.of(
            content,
            fpir=settings.fpir,
            threshold=threshold,
            min_quality=service.search_row_builder.min_quality,
        )
    return ModelInfo(
        name=embedder.name,
        sha256=embedder.sha256,
        detector=None if scorer.detector is None else scorer.detector_name,
        has_quality=service.has_quality,
        min_quality=service.row_builder.min_quality,
        fmr=None if service.rule is None else service.rule.fmr,
        gallery=found,
        template=TEMPLATE.tolist(),
        template_size=CROP_SIZE,
        limits=RequestLimits(
            **{name: getattr(settings, f"max_{name}") for name in RequestLimits.model_fields}
            | ({} if settings.video else {"seconds": None})
        ),
        description=embedder.description,
    )


def _error_schemas(*codes: str) -> dict[int | str, dict[str, Any]]:
    """The error responses of a route, for the OpenAPI schema."""
    return {
        STATUS[code]: {"model": Problem, "description": code.replace("_", " ").capitalize()}
        for code in (*codes, "wrong_host", "headers_too_large")
    }
