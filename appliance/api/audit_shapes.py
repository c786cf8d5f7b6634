"""Bodies of the audit routes."""

import re
from typing import Annotated, Self

from pydantic import Field, model_validator

from appliance.api.shapes import Name, Shape, TokenId

DIGESTS = 1024
"""Answers that one body may speak of."""
IDS = 1_000_000
_DIGEST = re.compile(r"[0-9a-fA-F]{64}")

Ids = Annotated[list[TokenId], Field(max_length=IDS, fail_fast=True)]


class Which(Shape):
    """Which answer is meant, where the name in the path means several."""

    id: Name | None = Field(None, description="The answer's id.")
    choice: Annotated[int, Field(ge=0, le=1023)] | None = None


class VerifyRequest(Which):
    """POST /v1/audit/{trace_id}/verify."""

    digest: Annotated[str, Field(max_length=65 * DIGESTS)] | None = Field(
        None, description="`X-Token-Diff-SHA256` as it came, or as the client computed it."
    )
    digests: (
        Annotated[list[Annotated[str, Field(max_length=64)]], Field(max_length=DIGESTS)] | None
    ) = Field(None, description="The same as a list: every choice of every prompt, in order.")
    prompt_token_ids: Ids | None = Field(
        None, description="With these and token_ids, a conflict names the first difference."
    )
    token_ids: Ids | None = None

    @model_validator(mode="after")
    def _says_something(self) -> Self:
        if (self.digest is None) == (self.digests is None):
            raise ValueError("give digest or digests")
        if not self.claims or not all(_DIGEST.fullmatch(claim) for claim in self.claims):
            raise ValueError("a digest has 64 hexadecimal digits")
        if self.token_ids is not None and len(self.claims) > 1:
            raise ValueError("token_ids are of one answer: give its digest alone")
        if self.prompt_token_ids is not None and self.token_ids is None:
            raise ValueError("prompt_token_ids needs token_ids")
        return self

    @property
    def claims(self) -> list[str]:
        """The client's digests, in order."""
        given = self.digests if self.digests is not None else (self.digest or "").split(",")
        return [claim.strip().lower() for claim in given]


class ReplayRequest(Which):
    """POST /admin/audit/{trace_id}/replay. The body may be left out."""

    force: bool | None = Field(None, description="Replay again what was replayed before.")
