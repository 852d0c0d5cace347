"""What each mode of reclaim can replay: literal as recorded, elastic by the model (S10.4)."""

from __future__ import annotations

from pagealloc_model.base.errors import PolicyError
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


def check_mode(policy: Policy, assumptions: Assumptions) -> None:
    """Refuse a literal replay of what only an elastic one does.

    Args:
        policy: what the caller changed.
        assumptions: name the mode.

    Raises:
        PolicyError: a field that only an elastic replay reads, in a literal one.
    """
    if assumptions.reclaim == "elastic":
        return
    given = policy.given()
    for name in ELASTIC_SETTINGS:
        if name in given:
            raise PolicyError(
                f"policy {name}: a literal replay repeats the recorded reclaim and compaction; "
                "use Assumptions(reclaim='elastic')"
            )
