"""Test whether two ways to replay a recording did the same."""

from __future__ import annotations

from pathlib import Path

import numpy as np

import pagealloc_model as pm
from pagealloc_model.allocator.hooks import are_compiled
from pagealloc_model.allocator.layout import LOG
from pagealloc_model.base.text import count_of, paragraph

TABLES = ("free_pages", "pageblocks", "pcp", "lock", "transactions", "fallbacks", "outcomes")
KNOWN_TO_MODEL = ("order", "migratetype")
"""Fields of the log that the kernel shim does not know for every site."""


def agreement_text(one: pm.Replay, other: pm.Replay) -> str:
    """Test whether objects are in the same places, and all holds and tables are the same."""
    tables = [name for name in TABLES if not getattr(one, name).equals(getattr(other, name))]
    elsewhere = int((one.places != other.places).sum())
    shared = [name for name in LOG.names or () if name not in KNOWN_TO_MODEL]
    same_holds = np.array_equal(one.log[shared], other.log[shared])
    if not tables and not elsewhere and same_holds:
        return (
            f"identical: {count_of(len(one.places), 'object')}, "
            f"{count_of(len(one.log), 'hold')} of zone->lock, "
            f"{len(TABLES)} tables"
        )
    return (
        f"different: {elsewhere} objects elsewhere, {len(one.log)} and {len(other.log)} holds of "
        f"zone->lock, tables that differ: {', '.join(tables) or 'none'}"
    )


def hooks_and_policy_text(
    recording: pm.Recording, hooks: pm.Hooks, policy: pm.Policy, *, compiles: bool = True
) -> str:
    """Test whether functions of one's own and a policy of the model do the same to a recording."""
    if not compiles and not are_compiled(hooks):
        return "skipped: not compiled yet, which takes minutes, once: set compile_hook = True"
    literal = pm.Assumptions(reclaim="literal")
    is_open = pm.Policy(highatomic_gate_order=0)
    hooked = pm.replay(recording, is_open, hooks=hooks, assumptions=literal)
    return agreement_text(pm.replay(recording, policy, assumptions=literal), hooked)


def patch_and_policy_text(
    recording: pm.Recording, source: Path | str, patch: Path | str | None, policy: pm.Policy
) -> str:
    """Test whether a patch to a kernel's source and a policy do the same to a recording.

    Where there is no such source or no compiler, one line says so and what to do.
    """
    try:
        build = pm.KernelBuild(source, patch=patch)
        kernel = pm.replay(recording, build, rules=build.rules)
    except pm.UsageError as error:
        return f"skipped: {error}"
    assumptions = pm.Assumptions(reclaim="literal", plain_demand=True)
    model = pm.replay(recording, policy, rules=build.rules, assumptions=assumptions)
    said = [("code:   ", build.name), ("model:  ", f"{policy}, rules {build.rules.spelled()}")]
    lines = [paragraph(text, label=label) for label, text in said]
    return "\n".join([*lines, paragraph(agreement_text(model, kernel), label="")])
