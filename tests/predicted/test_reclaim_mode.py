"""Which mode of reclaim a replay takes: the same everywhere, and none leaves out what was asked."""

from __future__ import annotations

import pytest

import pagealloc_model as pm
from pagealloc_model.base.errors import PolicyError
from pagealloc_model.policy.policy import ELASTIC_SETTINGS, policy_settings
from pagealloc_model.predicted.reclaim_mode import (
    ReclaimChoice,
    check_mode,
    choose_reclaim,
    several_choices,
)
from pagealloc_model.show.html.results import replay_text
from tests.small_recordings import ELASTIC, LITERAL, shipped_recording

# Nothing that only one mode of reclaim has is silently left out in the other


@pytest.mark.parametrize("name", ELASTIC_SETTINGS)
def test_a_literal_replay_refuses_what_needs_the_models_own_reclaim(name: str) -> None:
    about = policy_settings()[name].metadata
    value = about["choices"][0] if about["kind"] == "choice" else about["maximum"]
    policy = pm.Policy.from_settings({name: bool(value) if about["kind"] == "bool" else value})
    with pytest.raises(PolicyError, match=f"policy {name}: a literal replay"):
        check_mode(policy, LITERAL, is_build=False)
    check_mode(policy, ELASTIC, is_build=False)


def test_a_kernel_build_keeps_its_reserve_to_itself_in_an_elastic_replay() -> None:
    check_mode(pm.Policy(compaction_proactiveness=60), ELASTIC, is_build=True)
    with pytest.raises(PolicyError, match="kcompactd_unreserves"):
        check_mode(pm.Policy(kcompactd_unreserves=True), ELASTIC, is_build=True)


@pytest.mark.parametrize(
    ("recording", "policy", "asked", "mode", "why"),
    [
        ("xfree", pm.Policy(pcp_batch=31), "auto", "literal", "reclaimed nothing"),
        ("xfree", pm.Policy(defrag_mode=1), "auto", "elastic", "defrag_mode acts through reclaim"),
        ("xfree", pm.Policy(min_free_kbytes=9000), "auto", "elastic", "min_free_kbytes acts"),
        ("highatomic_gate3", pm.Policy(), "auto", "elastic", "reclaimed 58,914 pages"),
        ("highatomic_gate3", pm.Policy(), "literal", "literal", "as asked for"),
    ],
)
def test_reclaim_is_chosen_by_policy_and_recording(
    recording: str, policy: pm.Policy, asked: str, mode: str, why: str
) -> None:
    own = pm.Assumptions(reclaim=asked)
    chosen = choose_reclaim(shipped_recording(recording), policy, asked=own)
    assert chosen.mode == mode
    assert why in chosen.why
    assert str(chosen).startswith(f"Reclaim is {mode} (")


def test_a_replay_names_its_mode_and_why() -> None:
    replay = pm.replay(shipped_recording("mixed_6.1"))
    why = "the recorded kernel reclaimed 31,308 pages"
    assert (replay.reclaim.mode, replay.reclaim.why) == ("elastic", why)
    assert replay.assumptions.reclaim == "elastic"
    assert repr(replay) == f"<Replay of mixed_6.1, as recorded, elastic reclaim: {why}>"
    assert why in " ".join(replay_text(replay).split())


def test_other_assumptions_leave_the_mode_alone() -> None:
    assumptions = pm.Assumptions(free_high_batch=False)
    replay = pm.replay(shipped_recording("mixed_6.1"), assumptions=assumptions)
    assert replay.reclaim.mode == "elastic"
    assert not replay.assumptions.free_high_batch


def test_recordings_side_by_side_are_named_by_mode() -> None:
    choices = {
        "a": ReclaimChoice(mode="elastic", why="the recorded kernel reclaimed 1 pages"),
        "b": ReclaimChoice(mode="literal", why="the recorded kernel reclaimed nothing"),
        "c": ReclaimChoice(mode="elastic", why="the recorded kernel reclaimed 2 pages"),
    }
    words = several_choices(choices)
    assert "is elastic (the model decides what is reclaimed and compacted) for a, c: the" in words
    assert "for b: the recorded kernel reclaimed nothing." in words
    assert several_choices({}) == ""
