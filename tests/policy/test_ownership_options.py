"""Options of pageblock ownership."""

from __future__ import annotations

import pytest

from pagealloc_model.base.errors import PolicyError
from pagealloc_model.policy.ownership_options import OwnershipOptions
from pagealloc_model.policy.policy import Policy


def test_options_are_held_by_their_own_class() -> None:
    with pytest.raises(PolicyError, match="ownership='high': give an OwnershipOptions"):
        Policy(ownership="high")  # type: ignore[arg-type]
    with pytest.raises(PolicyError, match=r"ownership\.fit_test=None"):
        OwnershipOptions(fit_test=None)  # type: ignore[arg-type]
