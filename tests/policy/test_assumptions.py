"""Assumptions: what is near an unknown field's name."""

from __future__ import annotations

from dataclasses import fields

import pytest

from pagealloc_model.base.errors import PolicyError
from pagealloc_model.policy.assumptions import ElasticAssumptions
from pagealloc_model.policy.ownership_options import OwnershipOptions
from pagealloc_model.policy.policy import Assumptions, Policy


@pytest.mark.parametrize("kind", [Policy, OwnershipOptions, Assumptions, ElasticAssumptions])
def test_an_unknown_field_is_answered_with_near_names(kind: type) -> None:
    known = fields(kind)[0].name
    with pytest.raises(PolicyError, match=f"no field '{known}s'; did you mean {known}"):
        kind(**{f"{known}s": 1})
