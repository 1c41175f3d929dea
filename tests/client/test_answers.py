"""Which statuses of a read are misses, and which are errors."""

from __future__ import annotations

from mooncake_client.answers import MISSES
from mooncake_store.status import Status


def test_misses_are_what_is_not_there_and_nothing_else() -> None:
    """A wrong byte is never a miss: the operator must hear of it. A lost node is never an error."""
    assert {
        Status.OBJECT_NOT_FOUND,
        Status.REPLICA_NOT_FOUND,
        Status.REPLICA_IS_GONE,
        Status.REPLICA_IS_NOT_READY,
        Status.REBUILDING,
        Status.GONE,
        Status.UNREACHABLE,
    } == MISSES
