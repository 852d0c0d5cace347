"""Nothing that only one mode of reclaim has is silently left out in the other."""

from __future__ import annotations

from dataclasses import fields

import pytest

import pagealloc_model as pm
from pagealloc_model.base.errors import PolicyError
from pagealloc_model.policy import ElasticAssumptions
from pagealloc_model.policy.policy import policy_settings
from pagealloc_model.predicted.replay import ELASTIC_SETTINGS, check_mode, choose_reclaim
from tests.small_recordings import shipped_recording

ELASTIC = pm.Assumptions(reclaim="elastic")


@pytest.mark.parametrize("name", ELASTIC_SETTINGS)
def test_a_literal_replay_refuses_what_needs_the_models_own_reclaim(name: str) -> None:
    about = policy_settings()[name].metadata
    value = about["choices"][0] if about["kind"] == "choice" else about["maximum"]
    policy = pm.Policy.from_settings({name: bool(value) if about["kind"] == "bool" else value})
    with pytest.raises(PolicyError, match=f"policy {name}: a literal replay"):
        check_mode(policy, pm.Assumptions(), is_build=False)
    check_mode(policy, ELASTIC, is_build=False)


def test_the_settings_are_fields() -> None:
    assert set(ELASTIC_SETTINGS) <= {each.name for each in fields(pm.Policy)}


def test_a_kernel_build_keeps_its_reserve_to_itself_in_an_elastic_replay() -> None:
    check_mode(pm.Policy(compaction_proactiveness=60), ELASTIC, is_build=True)
    with pytest.raises(PolicyError, match="kcompactd_unreserves"):
        check_mode(pm.Policy(kcompactd_unreserves=True), ELASTIC, is_build=True)


@pytest.mark.parametrize(
    ("recording", "policy", "asked", "mode", "why"),
    [
        ("xfree", pm.Policy(pcp_batch=31), "", "literal", "reclaimed nothing"),
        ("xfree", pm.Policy(defrag_mode=1), "", "elastic", "defrag_mode acts through reclaim"),
        ("xfree", pm.Policy(min_free_kbytes=9000), "", "elastic", "min_free_kbytes acts"),
        ("highatomic_gate3", pm.Policy(), "", "elastic", "reclaimed 58,914 pages"),
        ("highatomic_gate3", pm.Policy(), "literal", "literal", "as asked for"),
    ],
)
def test_reclaim_is_chosen_by_policy_and_recording(
    recording: str, policy: pm.Policy, asked: str, mode: str, why: str
) -> None:
    chosen = choose_reclaim(shipped_recording(recording), policy, asked=asked)
    assert chosen.mode == mode
    assert why in chosen.why
    assert str(chosen).startswith(f"Reclaim is {mode} (")


@pytest.mark.parametrize(
    ("name", "value"),
    [("file_dirty_per_mille", 1001), ("anon_scan_percent", -1), ("reclaim_scan_ns", 1.5)],
)
def test_shares_and_times_are_checked(name: str, value: object) -> None:
    with pytest.raises(PolicyError, match=name):
        pm.Assumptions(elastic=ElasticAssumptions(**{name: value}))  # type: ignore[arg-type]
