"""The words of pageblock ownership as a replay begins: nothing owned, counters at 0."""

from __future__ import annotations

from dataclasses import fields

import numpy as np

from pagealloc_model.allocator.core import layout as at
from pagealloc_model.allocator.core import ownership_layout as own
from pagealloc_model.base.errors import PolicyError
from pagealloc_model.policy.kernel_rules import KernelRules
from pagealloc_model.policy.ownership_options import OwnershipOptions
from pagealloc_model.policy.policy import Policy
from pagealloc_model.policy.policy_fields import CHOICE


def is_owning(policy: Policy) -> bool:
    """No kernel function: return whether blocks can be owned under a policy."""
    return policy.pageblock_ownership == "pcp_buddy"


def check_rules(policy: Policy, rules: KernelRules) -> None:
    """No kernel function: refuse ownership in kernels that it cannot be added to.

    Raises:
        PolicyError: free lists need not match block types, or per-CPU lists are not tuned.
    """
    if is_owning(policy) and not (rules.lists_match_blocks and rules.pcp_auto_tuned):
        raise PolicyError(
            f"policy pageblock_ownership=pcp_buddy: not with rules {rules.spelled()}; it needs "
            "lists_match_blocks and pcp_auto_tuned, as in 6.12 and later"
        )


def ownership_words(policy: Policy, pagesets: int, blocks: int, base: int) -> np.ndarray:
    """No kernel function: return the words of ownership as a replay begins, int64.

    They are options, scalars and regions; nothing where blocks are never owned.

    Args:
        policy: its ownership options, None for the defaults.
        pagesets: zones times CPUs.
        blocks: pageblocks.
        base: where in `st` the words will be.
    """
    if not is_owning(policy):
        return np.zeros(0, np.int64)
    options = policy.ownership or OwnershipOptions()
    sets_end = own.SCALARS + pagesets * own.SET_STRIDE
    owners_end = sets_end + blocks
    words = np.zeros(owners_end + blocks * own.BLOCK_WORDS, np.int64)
    for each in fields(options):
        value = getattr(options, each.name)
        if each.metadata["kind"] == CHOICE:
            value = each.metadata["choices"].index(value)
        words[own.OPTION_WORDS[each.name]] = int(value)
    words[own.SETS] = base + own.SCALARS
    words[own.OWNERS] = base + sets_end
    words[own.BLOCKS] = base + owners_end
    recorded = words[own.SCALARS : sets_end].reshape(pagesets, own.SET_STRIDE)
    recorded[:, own.SET_RECORDED + at.HEAD] = -1
    recorded[:, own.SET_RECORDED + at.TAIL] = -1
    return words
