"""Loads that nobody recorded: made-up ones, and recorded ones on another machine or again."""

from pagealloc_model.loads.demand import (
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
from pagealloc_model.loads.run import (
    BlockUse,
    Memory,
    Run,
    block_use,
    buddies,
    managed_pages,
    run,
)
from pagealloc_model.loads.scale_up import scaled_up
from pagealloc_model.loads.scenarios import scenario
from pagealloc_model.recording.machine import Machine, Zone, synthetic_machine

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
    "buddies",
    "huge_gfp",
    "kind_of",
    "managed_pages",
    "run",
    "scaled_up",
    "scenario",
    "synthetic_machine",
]
