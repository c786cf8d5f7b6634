"""The HTTP application: the table of routes on FastAPI, behind `Tracing` and `Guard`."""

import re
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from fastapi import FastAPI
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute
from starlette.routing import Route as StarletteRoute

from appliance.api.boarding import caller_of
from appliance.api.box import Box, pin
from appliance.api.encoding import EncoderRoom
from appliance.api.faults import on_fault, on_http_exception
from appliance.api.feed import Feed
from appliance.api.guard import Guard
from appliance.api.openapi import described, document
from appliance.api.parameters import queries_of
from appliance.api.passes import Pass
from appliance.api.query import allow
from appliance.api.replays import replayer
from appliance.api.routes import DOCS, ROUTES, Handler, Route, need_of
from appliance.api.trace import Tracing, trace_of
from appliance.api.watch import Watch
from appliance.errors import ApiError, Forbidden


def create_app(box: Box) -> FastAPI:
    """The application that serves `box`. The box's parts are started and stopped by its daemon."""
    app = FastAPI(
        title="Steelyard",
        version=box.version,
        openapi_url=None,
        docs_url=None,
        redoc_url=None,
        redirect_slashes=False,
        lifespan=_lifespan,
        middleware=[
            Middleware(Tracing, metrics=box.metrics, tell=box.tell),
            Middleware(Guard, config=box.config, keys=box.keys, need_of=need_of),
        ],
        exception_handlers={ApiError: on_fault, HTTPException: on_http_exception},
    )
    app.state.box = box
    app.state.encoder_room = EncoderRoom(box.encoder)
    app.state.replays = replayer(lambda: app.state.box)
    app.state.feed = Feed(Watch(box))
    served = (*ROUTES, *DOCS) if box.config.api.docs else ROUTES
    for route in served:
        _add(app, route)
    app.state.openapi = document(app)
    for found in app.router.routes:
        assert _guarded(found, served), f"{found} is in no table, so nobody guards it"
    return app


def put_in(app: FastAPI, box: Box) -> None:
    """`box`, which serves another model, from now on; what came before keeps the former."""
    app.state.box = box
    app.state.feed.watch.serves(box)


@asynccontextmanager
async def _lifespan(app: FastAPI) -> AsyncIterator[None]:
    app.state.feed.start()
    yield
    await app.state.feed.close()
    await app.state.replays.close()
    app.state.encoder_room.close()


def _add(app: FastAPI, route: Route) -> None:
    """The route, its aliases, and HEAD where there is GET."""
    endpoint = _endpoint(route)
    app.add_api_route(
        route.path,
        endpoint,
        methods=[route.method],
        response_model=None,
        response_class=Response,
        **described(route),
    )
    for path in route.paths:
        methods: list[str] = [] if path == route.path else [route.method]
        if route.method == "GET":
            methods.append("HEAD")
        if methods:
            app.add_api_route(
                path, endpoint, methods=methods, response_model=None, include_in_schema=False
            )


def _endpoint(route: Route) -> Handler:
    queries = queries_of(route)

    async def endpoint(request: Request) -> Response:
        trace, box = trace_of(request), pin(request)
        if trace.granted != route.need:
            raise Forbidden("this route is not open to the request", code="not_granted")
        trace.route = route.path.replace(":path", "")
        try:
            if route.generates:
                trace.quota = Pass(box.quotas, trace.holder)
                trace.quota.knock()
            if route.need == "infer" and (refusal := box.switch.refusal()) is not None:
                raise refusal
            if queries is not None:
                allow(request, *queries)
            return await route.handler(request)
        except ApiError as fault:
            if route.generates and not trace.admitted:
                box.metrics.pulse.refuse(str(fault.code or fault.type), time.monotonic())
                box.books.refuse(caller_of(trace, trace.route), fault)
            raise

    endpoint.__name__ = route.handler.__name__
    endpoint.__doc__ = route.handler.__doc__
    return endpoint


def _guarded(found: BaseRoute, served: tuple[Route, ...]) -> bool:
    """Whether the guard's verdict for the route's path is the one that its table row asks for."""
    if not isinstance(found, StarletteRoute):
        return False
    rows = [route for route in served if found.path in route.paths]
    sample = re.sub(r"\{\w+(:path)?\}", "x", found.path)
    return bool(rows) and all(need_of(sample, route.method) == route.need for route in rows)
