"""All planted bugs, one file a part of the store."""

from mutants.catalogue import (
    client,
    copies,
    dial_back,
    dropin,
    eviction,
    master,
    metadata,
    node,
    places,
    proxy,
    python,
    reconcile,
    replay,
    staging,
    tasks,
    tombstones,
    wire,
)
from mutants.planted import Mutant

MUTANTS: list[Mutant] = [
    *metadata.MUTANTS,
    *eviction.MUTANTS,
    *node.MUTANTS,
    *copies.MUTANTS,
    *tombstones.MUTANTS,
    *reconcile.MUTANTS,
    *replay.MUTANTS,
    *tasks.MUTANTS,
    *wire.MUTANTS,
    *client.MUTANTS,
    *master.MUTANTS,
    *places.MUTANTS,
    *dial_back.MUTANTS,
    *python.MUTANTS,
    *staging.MUTANTS,
    *dropin.MUTANTS,
    *proxy.MUTANTS,
]
