"""The faults that are not ours: a client's (`BadRequest`), a refusal, the engine's end; and those
that the operator is told of (`ForOperator`).

Anything else that is raised is a bug: it is logged, answered with 500 and a trace id, and never
shown to the client in detail.
"""

from collections.abc import Callable, Mapping


class ForOperator(Exception):
    """What the operator asked for cannot be done; the message says why, and what to do."""


class ApiError(Exception):
    """An answer other than 200, in the shape of OpenAI's and of llama-server's error object."""

    status = 500
    type = "server_error"

    def __init__(
        self,
        message: str,
        *,
        param: str | None = None,
        code: str | None = None,
        extra: Mapping[str, object] | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> None:
        super().__init__(message)
        self.message = message
        self.param = param
        self.code = code
        self.extra = dict(extra or {})
        """Further members of the error object, e.g. `n_prompt_tokens` and `n_ctx`."""
        self.headers = dict(headers or {})

    def body(self) -> dict[str, object]:
        """`{"error": {...}}` with OpenAI's keys (message, type, param, code)."""
        return {
            "error": {
                "message": self.message,
                "type": self.type,
                "param": self.param,
                "code": self.code if self.code is not None else self.status,
                **self.extra,
            }
        }


def usage(prompt_tokens: int, completion_tokens: int) -> dict[str, int]:
    """What an answer cost that was not completed, as a member of the error object."""
    return {
        "prompt_tokens": prompt_tokens,
        "completion_tokens": completion_tokens,
        "total_tokens": prompt_tokens + completion_tokens,
    }


class BadRequest(ApiError):
    """The client's fault: 400, naming the field in `param`."""

    status = 400
    type = "invalid_request_error"


class ContextExceeded(BadRequest):
    """The prompt does not fit. Says both numbers."""

    type = "exceed_context_size_error"

    def __init__(self, prompt_tokens: int, n_ctx: int, *, at_least: bool = False) -> None:
        """`at_least`: they were not counted, but so many it has for certain."""
        has = f"at least {prompt_tokens}" if at_least else f"{prompt_tokens}"
        super().__init__(
            f"the request has {has} prompt tokens, and the context holds {n_ctx} with at "
            "least one for the answer: shorten the prompt or raise engine.context in the config",
            param="messages",
            code="context_length_exceeded",
            extra={"n_prompt_tokens": prompt_tokens, "n_ctx": n_ctx},
        )


class TooLarge(BadRequest):
    status = 413


class Unauthorized(ApiError):
    status = 401
    type = "authentication_error"


class Forbidden(ApiError):
    status = 403
    type = "permission_error"


class NotFound(ApiError):
    status = 404
    type = "not_found_error"


class MethodNotAllowed(ApiError):
    status = 405
    type = "invalid_request_error"


def _retry_after(seconds: float) -> dict[str, str]:
    """Whole seconds, at least one, as the header wants it."""
    return {"Retry-After": str(max(1, round(seconds)))}


class Overloaded(ApiError):
    """The queue is full: 429 with Retry-After, so that OpenAI's SDKs try again by themselves."""

    status = 429
    type = "rate_limit_error"

    def __init__(self, message: str, *, retry_after: float, code: str = "queue_full") -> None:
        super().__init__(message, code=code, headers=_retry_after(retry_after))


class Unavailable(ApiError):
    """The box cannot serve now (engine restarting, draining, stopping): 503 with Retry-After."""

    status = 503
    type = "unavailable_error"

    def __init__(
        self, message: str, *, retry_after: float = 2.0, code: str = "unavailable"
    ) -> None:
        super().__init__(message, code=code, headers=_retry_after(retry_after))


Farewell = Callable[[], ApiError]
"""Makes what a request is told that the end of a service meets."""


def shutting_down(retry_after: float = 2.0) -> ApiError:
    """What is told to requests that are open when the box stops, or come after that. `retry_after`
    in seconds."""
    return Unavailable("the box is shutting down", retry_after=retry_after, code="shutting_down")


class DeadlineExceeded(ApiError):
    """The request's own deadline passed before its answer was complete. The client set it, so it
    is a 4xx; SDKs would repeat a 408, hence the header that stops them."""

    status = 408
    type = "timeout_error"

    def __init__(self, message: str, *, code: str = "deadline_exceeded") -> None:
        super().__init__(message, code=code, headers={"x-should-retry": "false"})


class EngineFailed(ApiError):
    """The engine died or hung with this request in flight. `code` says how."""

    status = 500
    type = "engine_error"
