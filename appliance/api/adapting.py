"""GET and POST /lora-adapters: the LoRA adapters of the box, seen and set."""

from typing import Any

from starlette.requests import Request
from starlette.responses import Response

from appliance.adapters import Adapters
from appliance.api.admin import act
from appliance.api.bodies import decode, parse, read_body
from appliance.api.box import box_of
from appliance.api.lora import scales_of
from appliance.api.replies import json_response
from appliance.api.text_shapes import ScalesRequest


async def lora_adapters(request: Request) -> Response:
    """The LoRA adapters that are loaded. `scale`: how strongly each is applied to requests without
    `lora`."""
    return json_response(listed(box_of(request).adapters))


async def scale_lora_adapters(request: Request) -> Response:
    """How strongly each adapter is applied to requests without `lora`, from now on and until the
    box starts anew; those that are not named are not applied. llama-server's bare list will do."""
    box = box_of(request)
    limits = box.config.limits
    body = await read_body(request, limits.body_bytes, limits.body_s)
    data = decode(body, limits.json_depth, bare="adapters")
    shape, _ = parse(ScalesRequest, data, report=False)
    box.adapters.rescale(scales_of(box.adapters, shape.adapters, "adapters"))
    detail = {"lora": box.adapters.recorded(box.adapters.default)}
    recorded = await act(request, "lora.scale", detail=detail)
    return json_response({"success": True, "recorded": recorded})


def listed(adapters: Adapters) -> list[dict[str, Any]]:
    """All of them, as llama-server tells them and a little more."""
    return [
        {
            "id": adapter.id,
            "path": adapter.path.name,
            "scale": adapters.scale(adapter),
            "task_name": "",
            "prompt_prefix": "",
            "name": adapter.name,
            "sha256": adapter.sha256,
        }
        for adapter in adapters.loaded
    ]
