"""Time at zone->lock: what it costs, who waits for whom, and how far that is from a recording."""

from pagealloc_model.policy.lock_costs import LockCosts
from pagealloc_model.predicted.lock_times import LockModel, LockTimes, lock_times, with_spread
from pagealloc_model.verdict.lock_comparison import LockComparison, compare_locks
from pagealloc_model.verdict.lock_policies import lock_policy_table

__all__ = [
    "LockComparison",
    "LockCosts",
    "LockModel",
    "LockTimes",
    "compare_locks",
    "lock_policy_table",
    "lock_times",
    "with_spread",
]
