"""What the tests of the prepare process ask of it."""

from typing import Any

import pytest

from appliance import models
from appliance.config import ModelConfig
from appliance.errors import BadRequest
from appliance.prepare.client import Preparer
from appliance.prepare.messages import ChatJob, TextJob

MODEL = str(models.locate(ModelConfig()))
SLOW = "{% for i in range(99999) %}{% for j in range(99999) %}{% endfor %}{% endfor %}"


def user(text: str, **fields: Any) -> ChatJob:
    return ChatJob(messages=[{"role": "user", "content": text}], **fields)


async def refused(preparer: Preparer, job: ChatJob | TextJob) -> BadRequest:
    """The refusal, after which an ordinary job still works."""
    with pytest.raises(BadRequest) as caught:
        await (preparer.chat(job) if isinstance(job, ChatJob) else preparer.text(job))
    assert (await preparer.chat(user("hello"))).prompt
    return caught.value
