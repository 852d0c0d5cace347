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


def check_mode(policy: Policy, assumptions: Assumptions, *, is_model: bool) -> None:
    """Refuse a replay whose mode of reclaim does not have what is asked for.

    Args:
        policy: what the caller changed.
        assumptions: name the mode.
        is_model: the model's own kernels decide, without hooks.

    Raises:
        PolicyError: a field that only an elastic replay reads, in a literal one; ownership of
            pageblocks in an elastic one.
        UsageError: an elastic replay by a kernel build or with hooks.
    """
    given = policy.given()
    if assumptions.reclaim == "elastic":
        if not is_model:
            raise UsageError(
                "reclaim='elastic': neither kernel builds nor hooks have the model's own reclaim; "
                "use reclaim='literal'"
            )
        if given.get("pageblock_ownership", "off") != "off":
            raise PolicyError(
                "policy pageblock_ownership: not available with reclaim='elastic'; "
                "use reclaim='literal'"
            )
        return
    for name in ELASTIC_SETTINGS:
        if name in given:
            raise PolicyError(
                f"policy {name}: a literal replay repeats the recorded reclaim and compaction; "
                "use Assumptions(reclaim='elastic')"
            )
