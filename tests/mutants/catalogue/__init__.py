"""All planted bugs, one file a part of the store."""

from mutants.catalogue import (
    client,
    copies,
    dropin,
    master,
    metadata,
    node,
    python,
    reconcile,
    tasks,
    tombstones,
    wire,
)
from mutants.planted import Mutant

MUTANTS: list[Mutant] = [
    *metadata.MUTANTS,
    *node.MUTANTS,
    *copies.MUTANTS,
    *tombstones.MUTANTS,
    *reconcile.MUTANTS,
    *tasks.MUTANTS,
    *wire.MUTANTS,
    *client.MUTANTS,
    *master.MUTANTS,
    *python.MUTANTS,
    *dropin.MUTANTS,
]
