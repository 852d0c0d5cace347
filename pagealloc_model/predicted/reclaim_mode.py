"""What each mode of reclaim can replay: literal as recorded, elastic by the model (S10.4)."""

from __future__ import annotations

from pagealloc_model.base.errors import PolicyError, UsageError
from pagealloc_model.policy.policy import Assumptions, Policy, elastic_fields

ELASTIC_SETTINGS = elastic_fields()
"""Policy fields that act through reclaim, compaction or the slow path in full."""


def literal_part(policy: Policy) -> Policy:
    """The policy without what only an elastic replay reads."""
    given = policy.given()
    if not given.keys() & set(ELASTIC_SETTINGS):
        return policy
    return Policy.from_settings(
        {name: value for name, value in given.items() if name not in ELASTIC_SETTINGS}
    )


def check_mode(policy: Policy, assumptions: Assumptions, *, is_build: bool) -> None:
    """Refuse a replay whose mode of reclaim does not have what is asked for.

    Args:
        policy: what the caller changed.
        assumptions: name the mode.
        is_build: a kernel build takes the model's place.

    Raises:
        PolicyError: a field that only an elastic replay reads, in a literal one.
        UsageError: an elastic replay by a kernel build.
    """
    if assumptions.reclaim == "elastic":
        if is_build:
            raise UsageError(
                "reclaim='elastic': a kernel build keeps its free lists to itself, and the model's "
                "compaction searches and reorders them; use reclaim='literal', or hooks"
            )
        return
    given = policy.given()
    for name in ELASTIC_SETTINGS:
        if name in given:
            raise PolicyError(
                f"policy {name}: a literal replay repeats the recorded reclaim and compaction; "
                "use Assumptions(reclaim='elastic')"
            )
