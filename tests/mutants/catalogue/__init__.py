"""All planted bugs, one file a part of the store."""

from mutants.catalogue import client, master, metadata, node, python, wire
from mutants.planted import Mutant

MUTANTS: list[Mutant] = [
    *metadata.MUTANTS,
    *node.MUTANTS,
    *wire.MUTANTS,
    *client.MUTANTS,
    *master.MUTANTS,
    *python.MUTANTS,
]
