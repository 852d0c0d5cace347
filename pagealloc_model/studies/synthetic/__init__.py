"""Loads that nobody recorded: made-up ones, and recorded ones on another machine or again."""

from pagealloc_model.allocator.invariants import broken_invariants
from pagealloc_model.recording.machine import Machine, Zone, synthetic_machine
from pagealloc_model.studies.synthetic.demand import (
    EVENT,
    Demand,
    Gfp,
    Kind,
    Migratetype,
    Operation,
    Requests,
    huge_gfp,
    kind_of,
)
from pagealloc_model.studies.synthetic.run import (
    BlockUse,
    Memory,
    Run,
    block_use,
    buddies,
    managed_pages,
    run,
)
from pagealloc_model.studies.synthetic.scale_up import scaled_up
from pagealloc_model.studies.synthetic.scenarios import scenario

__all__ = [
    "EVENT",
    "BlockUse",
    "Demand",
    "Gfp",
    "Kind",
    "Machine",
    "Memory",
    "Migratetype",
    "Operation",
    "Requests",
    "Run",
    "Zone",
    "block_use",
    "broken_invariants",
    "buddies",
    "huge_gfp",
    "kind_of",
    "managed_pages",
    "run",
    "scaled_up",
    "scenario",
    "synthetic_machine",
]
