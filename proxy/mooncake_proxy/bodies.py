"""The bodies of requests: what the proxy reads of them, and the copies that the two phases get.

Owns which fields of the OpenAI API (as vLLM has it) mean what here; does no IO. What it does not know it
passes on.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any, Final

KV_TRANSFER: Final = "kv_transfer_params"

ASKED_OF_PREFILL: Final = {
    "do_remote_decode": True,
    "do_remote_prefill": False,
    "remote_engine_id": None,
    "remote_block_ids": None,
    "remote_host": None,
    "remote_port": None,
}
"""What the connectors of vLLM that send blocks from instance to instance want to find in a prefill's request.
The store's connector ignores it."""

DROPPED_FROM_PREFILL: Final = (
    # What `stream` and `max_tokens` of the copy contradict: engines refuse stream_options without stream, and
    # min_tokens above max_tokens.
    *("stream_options", "min_tokens"),
    # Costs work at the prefill instance, or makes its answer long, for an answer that nobody reads; none of
    # it changes the prompt's blocks.
    *("n", "best_of", "use_beam_search", "logprobs", "top_logprobs", "prompt_logprobs", "echo"),
)


_ENCODER: Final = json.JSONEncoder(separators=(",", ":"))


class BadBody(ValueError):
    """The body is not what a request must be; the text says why, for the client."""


@dataclass(frozen=True)
class Body:
    """One request's body. raw: as it came; fields: parsed."""

    raw: bytes
    fields: dict[str, Any]
    model: str | None
    is_streamed: bool


def parse(raw: bytes) -> Body:
    """Raises BadBody."""
    try:
        fields = json.loads(raw)
    except RecursionError:
        raise BadBody("the body is nested too deeply") from None
    except ValueError as error:  # not JSON, not UTF-8, or a number of thousands of digits
        raise BadBody(f"the body is not JSON: {error}") from None
    if not isinstance(fields, dict):
        raise BadBody(f"the body must be a JSON object, not {type(fields).__name__}")
    model = fields.get("model")
    if model is not None and not isinstance(model, str):
        raise BadBody("model must be a string")
    if KV_TRANSFER in fields:
        # It tells an engine from which host to take memory; clients have no say in that.
        raise BadBody(f"{KV_TRANSFER} is set by the proxy; leave it out")
    return Body(raw, fields, model, bool(fields.get("stream")))


def prefill_copy(body: Body) -> bytes:
    """The request that makes a prefill instance compute the prompt, and as little else as can be.

    Raises BadBody for what is nested too deeply to be written.
    """
    copy = {name: value for name, value in body.fields.items() if name not in DROPPED_FROM_PREFILL}
    copy["max_tokens"] = 1
    if "max_completion_tokens" in copy:  # wins over max_tokens where the engine knows it
        copy["max_completion_tokens"] = 1
    copy["stream"] = False
    copy[KV_TRANSFER] = ASKED_OF_PREFILL
    return _packed(copy)


def decode_copy(body: Body, transfer: dict[str, Any] | None) -> bytes:
    """The request itself, byte for byte; with what the prefill instance said of its blocks, if it did."""
    if transfer is None:
        return body.raw
    return _packed({**body.fields, KV_TRANSFER: transfer})


def transfer_of(answer: bytes) -> dict[str, Any] | None:
    """What a prefill's answer says of its blocks; None: nothing, as with the store's connector."""
    if KV_TRANSFER.encode() not in answer:
        return None
    try:
        transfer = json.loads(answer).get(KV_TRANSFER)
    except (ValueError, RecursionError, AttributeError):
        return None
    return transfer if isinstance(transfer, dict) else None


def _packed(fields: dict[str, Any]) -> bytes:
    try:
        return _ENCODER.encode(fields).encode()
    except RecursionError:
        raise BadBody("the body is nested too deeply") from None
