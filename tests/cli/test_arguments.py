"""Arguments that commands share: policies in parts, JSON without NaN."""

from __future__ import annotations

import json

import pytest

from pagealloc_model.base.errors import PolicyError
from pagealloc_model.cli.arguments import json_text, policy_of
from pagealloc_model.policy.policy import Policy


def test_json_has_no_nan() -> None:
    assert json.loads(json_text({"a": float("nan"), "b": [float("inf"), 1]})) == {
        "a": None,
        "b": [None, 1],
    }


def test_a_policy_may_be_given_in_parts_and_as_it_is_printed() -> None:
    for words in (
        ["pcp_batch=3,costly_order=2"],
        ["pcp_batch=3 costly_order=2"],
        ["pcp_batch=3", "costly_order=2"],
    ):
        assert policy_of("--patch", words) == Policy(pcp_batch=3, costly_order=2)
    with pytest.raises(PolicyError, match="pcp_batch is given twice"):
        policy_of("--patch", ["pcp_batch=3", "pcp_batch=4"])
