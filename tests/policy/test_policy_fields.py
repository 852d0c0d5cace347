"""Fields of a policy: their help and their settings as text."""

from __future__ import annotations

import pydoc
from dataclasses import fields
from inspect import signature

import pytest

from pagealloc_model.policy.ownership_options import OwnershipOptions
from pagealloc_model.policy.policy import Policy
from pagealloc_model.policy.policy_fields import Setting, values_of


@pytest.mark.parametrize(
    ("words", "given_values"),
    [
        ([], {}),
        (["pcp_batch=31"], {"pcp_batch": 31}),
        (["pcp_batch = 31", "costly_order=2"], {"pcp_batch": 31, "costly_order": 2}),
        (["pcp_free_batched=on"], {"pcp_free_batched": True}),
        (["pcp_free_batched=0"], {"pcp_free_batched": False}),
        (["pcp_batch=none"], {}),
        (["pageblock_ownership=pcp_buddy"], {"pageblock_ownership": "pcp_buddy"}),
        (["ownership.fit_test=always"], {"ownership.fit_test": "always"}),
        (["ownership.recorded_cap=8"], {"ownership.recorded_cap": 8}),
        (["ownership.routes_frees=0"], {"ownership.routes_frees": False}),
        (["ownership.fit_test=high", "ownership.recovers=none"], {}),
    ],
)
def test_settings_as_text(words: list[str], given_values: dict[str, Setting]) -> None:
    assert Policy.parse(words).given() == given_values


@pytest.mark.parametrize(("kind", "most"), [(Policy, 120), (OwnershipOptions, 80)])
def test_help_says_of_each_field_what_it_is(kind: type, most: int) -> None:
    told = pydoc.render_doc(kind, renderer=pydoc.plaintext)
    assert len(told.splitlines()) <= most
    words = " ".join(told.replace("|", " ").split())
    for each in fields(kind):
        about = each.metadata
        assert (
            f"{each.name}: {about['kernel_name']} ({values_of(about)}): {about['meaning']}" in words
        )
    assert list(signature(kind).parameters) == [each.name for each in fields(kind)]
