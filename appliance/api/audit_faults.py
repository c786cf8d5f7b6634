"""How an audit can end otherwise than well."""

from collections.abc import Mapping

from appliance.errors import ApiError


class DigestConflict(ApiError):
    """The client has other tokens than the ledger. The error object holds what is known."""

    status = 409
    type = "conflict_error"

    def __init__(self, message: str, known: Mapping[str, object]) -> None:
        super().__init__(
            message,
            code="token_digest_conflict",
            extra=known,
            headers={"x-should-retry": "false"},
        )


class NotFinished(ApiError):
    """The request still runs."""

    status = 409
    type = "conflict_error"

    def __init__(self, name: str) -> None:
        super().__init__(
            f"the request {name[:100]!r} has not ended: ask again when it has",
            code="request_not_finished",
            headers={"Retry-After": "1"},
        )


class NotReplayable(ApiError):
    """Why an answer cannot be run again."""

    status = 409
    type = "conflict_error"

    def __init__(self, why: str) -> None:
        super().__init__(f"this answer cannot be replayed: {why}", code="not_replayable")
