"""Answers that are the proxy's own: refusals with their cause, in the form that OpenAI's clients read."""

from __future__ import annotations

from typing import Any, Final

from aiohttp import web

RETRY_AFTER_S: Final = 1
TYPES: Final = {
    400: "invalid_request_error",
    401: "authentication_error",
    403: "permission_error",
    404: "not_found_error",
    405: "invalid_request_error",
    408: "timeout_error",
    413: "invalid_request_error",
    415: "invalid_request_error",
    502: "bad_gateway_error",
    503: "service_unavailable_error",
    504: "timeout_error",
}


class Refusal(Exception):
    """Ends a request with this status and text. reason: a word for the metric of refusals."""

    def __init__(self, status: int, text: str, *, reason: str) -> None:
        super().__init__(text)
        self.status = status
        self.reason = reason


def error_object(status: int, text: str) -> dict[str, Any]:
    kind = TYPES.get(status, "server_error" if status >= 500 else "invalid_request_error")
    return {"error": {"message": text, "type": kind, "param": None, "code": status}}


def error_response(status: int, text: str) -> web.Response:
    headers = {"Retry-After": str(RETRY_AFTER_S)} if status == 503 else {}
    return web.json_response(error_object(status, text), status=status, headers=headers)
