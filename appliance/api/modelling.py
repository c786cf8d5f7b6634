"""Which model is served, and another one in its place. Shapes: modelling_shapes.py.

GET  /admin/model   ModelNow
POST /admin/model   ModelDone; body {"use": NAME}
"""

from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import Response

from appliance.api.admin import action_row
from appliance.api.bodies import read_shape
from appliance.api.box import Box, box_of
from appliance.api.events import feed_of
from appliance.api.faults import Conflict
from appliance.api.modelling_shapes import ModelDone, ModelNow, ModelRequest
from appliance.api.replies import json_response
from appliance.errors import NotFound, Unavailable
from appliance.gguf import BadModel
from appliance.models import Store, Stored


async def served(request: Request) -> Response:
    """The model that is served, what was chosen, and how a switch goes or went."""
    box = box_of(request)
    try:
        selected = await run_in_threadpool(_store(box).selected)
    except BadModel as error:
        raise Unavailable(str(error)) from error
    return json_response(
        ModelNow(
            name=box.model.name,
            sha256=box.model.sha256,
            packaged=box.model.packaged,
            selected=selected,
            fixed=bool(box.config.model.path),
            switch=box.switch.state,
        )
    )


async def use_model(request: Request) -> Response:
    """Serve another model from now on. It is tried first; if it does not come, the former stays or
    comes back."""
    shape, _ = await read_shape(request, ModelRequest)
    box = box_of(request)
    if box.config.model.path:
        raise Conflict(
            "model.path in the configuration (or --model) names the model that is served: take it "
            "away and restart the box, then models can be chosen",
            code="model_fixed",
        )
    try:
        wanted = await run_in_threadpool(_store(box).get, shape.use)
    except BadModel as error:
        raise NotFound(str(error), param="use", code="model_not_found") from error
    if box.switch.state.phase == "none" and _serves(box, wanted):
        return json_response(ModelDone("serving", wanted.name))
    calibrating = feed_of(request).watch.calibrating
    if calibrating.status.state == "running" or calibrating.running:
        raise Conflict(
            "a calibration runs for the model that is served: wait for its end, or stop it with "
            "`steelyard calibrate stop`",
            code="calibration_runs",
        )
    if not box.switch.begin(wanted.name, action_row(request, "model.use", wanted.name)):
        state = box.switch.state
        raise Conflict(
            f"the box goes over from {state.source} to {state.target} just now: ask again when "
            "GET /admin/model says that this is over",
            code="switch_under_way",
        )
    return json_response(ModelDone("switching", wanted.name), status=202)


def _serves(box: Box, wanted: Stored) -> bool:
    """Whether that is the model in the seat, by its content."""
    stored = box.model.stored
    if wanted.packaged or stored is None:
        return wanted.packaged and box.model.packaged
    return (wanted.name, wanted.sha256) == (stored.name, stored.sha256)


def _store(box: Box) -> Store:
    return Store(box.config.server.state_dir)
