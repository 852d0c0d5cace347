"""What each mode of reclaim can replay: literal as recorded, elastic by the model (S10.4)."""

from __future__ import annotations

from pagealloc_model.base.errors import PolicyError
from pagealloc_model.policy.policy import Assumptions, Policy
from pagealloc_model.policy.policy_numbers import elastic_fields

ELASTIC_SETTINGS = elastic_fields()
"""Policy fields that act through reclaim, compaction or the slow path in full."""

WITHOUT_BUILD = ("kcompactd_unreserves",)
"""Fields of the model's compaction that reach into what a kernel build decides."""


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
        PolicyError: a field that only an elastic replay reads, in a literal one; one that an
            elastic replay by a kernel build does not have.
    """
    given = policy.given()
    if assumptions.reclaim == "elastic":
        if is_build:
            for name in WITHOUT_BUILD:
                if name in given:
                    raise PolicyError(
                        f"policy {name}: an elastic replay by a kernel build does not have it, as "
                        "it is about reserved blocks, which are the tree's; leave it out"
                    )
        return
    for name in ELASTIC_SETTINGS:
        if name in given:
            raise PolicyError(
                f"policy {name}: a literal replay repeats the recorded reclaim and compaction; "
                "use Assumptions(reclaim='elastic')"
            )
