"""Which rules a recording gets: by release, settings, and on demand by what the kernel did."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from pagealloc_model.base.errors import PolicyError
from pagealloc_model.measured.rules import (
    ASSUMED,
    FROM_SOURCE,
    GIVEN,
    INFERRED,
    SHOWN,
    RuleEvidence,
    Settings,
    checked,
    choose_rules,
    recorded_rules,
    rule_notes,
)
from pagealloc_model.policy.kernel_rules import PRESETS, KernelRules
from pagealloc_model.recording.proc.zoneinfo import ZoneInfoZone, parse_zoneinfo
from pagealloc_model.recording.recording import Recording, open_recording
from pagealloc_model.recording.zone_map import ZoneMap
from tests.predicted.test_no_peeking import blinded
from tests.recording.proc.samples_of import sample
from tests.small_recordings import (
    NORMAL,
    TimedEvents,
    busy_events,
    start_free,
    write_recording,
    zoneinfo_text,
)


def made_recording(
    directory: Path, release: str, events: TimedEvents | None = None, **meta: object
) -> Recording:
    return open_recording(write_recording(directory / "made", events, release=release, **meta))


def of(evidence: tuple[RuleEvidence, ...], rule: str) -> RuleEvidence:
    return next(item for item in evidence if item.rule == rule)


def holding(*, batched: bool) -> TimedEvents:
    """A busy recording whose drains drop the lock after each batch, or do not."""
    return drains(pause=3 if batched else 0, events=busy_events())


@pytest.mark.parametrize(
    ("release", "standings"),
    [
        ("7.2.13", {FROM_SOURCE, SHOWN}),
        ("6.18.3", {SHOWN, INFERRED}),
        ("6.14.0", {ASSUMED, SHOWN}),
        ("9.9", {ASSUMED, SHOWN}),
        ("", {ASSUMED, SHOWN}),
    ],
)
def test_standings_follow_the_release(tmp_path: Path, release: str, standings: set[str]) -> None:
    chosen = recorded_rules(made_recording(tmp_path, release))
    assert {item.standing for item in chosen.evidence} <= standings
    assert chosen.origin == KernelRules.for_release(release)[1]
    assert tuple(item.rule for item in chosen.evidence) == KernelRules.rule_names()
    for item in chosen.evidence:
        assert item.value == getattr(chosen.rules, item.rule)
        assert item.line


def test_settings_overrule_the_release_and_say_so(tmp_path: Path) -> None:
    recording = made_recording(tmp_path, "6.12.117", sysctl={"pcp_free_batched": "1"})
    chosen = recorded_rules(recording)
    assert PRESETS["6.12"].free_batched is False
    assert chosen.rules.free_batched is True
    assert chosen.rules.spelled() == "6.12,free_batched=true"
    item = of(chosen.evidence, "free_batched")
    assert item.standing == SHOWN
    assert item.line == "sysctl pcp_free_batched exists; the preset says False"
    assert "free_batched is True: sysctl pcp_free_batched exists" in chosen.origin
    assert "\n" not in chosen.origin


def test_what_the_kernel_did_checks_but_chooses_only_where_it_may(tmp_path: Path) -> None:
    recording = made_recording(tmp_path, "6.18.3", holding(batched=True))
    chosen, by_evidence = recorded_rules(recording), choose_rules(recording, "evidence")
    assert chosen.rules.free_batched is False
    evidence = checked(recording, chosen.evidence)
    assert of(evidence, "free_batched").contradicted
    notes = rule_notes(evidence, chosen.rules)
    assert notes[-1].startswith("rule free_batched = False is contradicted by events: commit")
    assert notes[-1].endswith("use --rules evidence, or --rules 6.18,free_batched=true")
    assert by_evidence.rules.free_batched is True
    assert of(by_evidence.evidence, "free_batched").standing == SHOWN
    assert "free_batched is True: commit drains" in by_evidence.origin
    assert "has seen part of it" in by_evidence.origin
    assert not of(checked(recording, by_evidence.evidence), "free_batched").contradicted
    # no peeking
    assert recorded_rules(blinded(recording)) == chosen
    assert choose_rules(blinded(recording), "evidence") != by_evidence


def test_agreement_is_confirmed(tmp_path: Path) -> None:
    recording = made_recording(tmp_path, "6.18.3", holding(batched=False))
    chosen = recorded_rules(recording)
    item = of(checked(recording, chosen.evidence), "free_batched")
    assert item.check.startswith("confirmed by events: commit drains")
    assert not any("contradicted" in note for note in rule_notes((item,), chosen.rules))


def test_a_switched_policy_is_no_contradiction(tmp_path: Path) -> None:
    recording = made_recording(
        tmp_path, "7.2.1", holding(batched=False), sysctl={"pcp_free_batched": "0"}
    )
    for rules in (None, "evidence"):
        chosen = choose_rules(recording, rules)
        assert chosen.rules.free_batched is True
        item = of(checked(recording, chosen.evidence), "free_batched")
        assert item.check.startswith("confirmed by events under the recorded policy")


def test_inferred_and_assumed_rules_stay_visible(tmp_path: Path) -> None:
    inferred = recorded_rules(made_recording(tmp_path / "a", "6.18.3"))
    assert "highatomic_from_pcp" in rule_notes(inferred.evidence, inferred.rules)[0]
    assumed = recorded_rules(made_recording(tmp_path / "b", "6.14.0"))
    assert "assumed from another release: " in rule_notes(assumed.evidence, assumed.rules)[0]
    read = recorded_rules(made_recording(tmp_path / "c", "7.2.13"))
    assert rule_notes(read.evidence, read.rules) == []


def test_an_old_kernel_is_refused_unless_evidence_may_choose(tmp_path: Path) -> None:
    recording = made_recording(tmp_path, "4.19.0")
    with pytest.raises(PolicyError, match="older than the oldest"):
        choose_rules(recording)
    chosen = choose_rules(recording, "evidence")
    assert chosen.rules.name == next(iter(PRESETS))
    assert "older than every preset" in chosen.origin


def test_given_rules_are_the_callers(tmp_path: Path) -> None:
    recording = made_recording(tmp_path, "6.18.3")
    by_name = choose_rules(recording, "7.2,decay_batched=false")
    assert by_name.rules == KernelRules.named("7.2,decay_batched=false")
    by_rules = choose_rules(recording, PRESETS["6.12"])
    assert by_rules.rules is PRESETS["6.12"]
    for chosen in (by_name, by_rules):
        assert {item.standing for item in chosen.evidence} == {GIVEN}
        assert "by the caller" in chosen.origin


# Rules that sysctls, zoneinfo and the event format show before the first event


def zones_of(text: str) -> tuple[ZoneInfoZone, ...]:
    return tuple(zone for zone in parse_zoneinfo(text).zones if zone.managed)


def without_bounds(*highs: int) -> tuple[ZoneInfoZone, ...]:
    """Zones of a kernel that prints no high_min, with such limits of its CPUs."""
    lines = [line for line in zoneinfo_text(start_free(), {}).splitlines() if "high_m" not in line]
    places = [index for index, line in enumerate(lines) if "high: 60" in line]
    for index, high in zip(reversed(places), highs, strict=False):
        lines[index] = lines[index].replace("60", str(high))
    return zones_of("\n".join(lines))


def movable_zone(low: int) -> tuple[ZoneInfoZone, ...]:
    text = zoneinfo_text(start_free(), {}).replace(" Movable", "  Device")
    text = text.replace("  Normal", " Movable")
    for mark, printed in (("min ", 64), ("low ", 80), ("high", 96)):
        text = text.replace(f"        {mark}     {printed}", f"        {mark}     {low}")
    return zones_of(text)


BLOCKS = zoneinfo_text(start_free(), {}).replace(
    "  pagesets", "      nr_free_pages_blocks 512\n  pagesets"
)
ATOMIC = frozenset({"__GFP_HIGH", "__GFP_ATOMIC"})


@pytest.mark.parametrize(
    ("settings", "rule", "expected"),
    [
        ({"zones": zones_of(zoneinfo_text(start_free(), {}))}, "pcp_auto_tuned", True),
        ({"zones": without_bounds()}, "pcp_auto_tuned", None),
        ({"zones": without_bounds(90)}, "pcp_auto_tuned", True),
        ({"sysctls": {"defrag_mode": "0"}}, "fallback_from_largest", False),
        ({"sysctls": {"defrag_mode": "0"}}, "lists_match_blocks", True),
        ({"sysctls": {"defrag_mode": None}}, "fallback_from_largest", None),
        ({"zones": zones_of(BLOCKS)}, "fallback_from_largest", False),
        ({"zones": zones_of(BLOCKS)}, "lists_match_blocks", True),
        ({"zones": zones_of(sample("6.1", "zoneinfo"))}, "fallback_from_largest", None),
        ({"zones": movable_zone(128)}, "movable_min_capped", True),
        ({"zones": movable_zone(129)}, "movable_min_capped", False),
        ({}, "movable_min_capped", None),
        ({"gfp_names": ATOMIC - {"__GFP_ATOMIC"}}, "boost_retry_by_high", True),
        ({"gfp_names": ATOMIC}, "boost_retry_by_high", False),
        ({}, "boost_retry_by_high", None),
    ],
)
def test_settings_show_rules(settings: dict[str, Any], rule: str, expected: bool | None) -> None:
    finding = Settings(**settings).findings().get(rule)
    assert (finding and finding.value) is expected


def test_limits_by_cpu_are_named_and_nothing_shows_nothing(tmp_path: Path) -> None:
    finding = Settings(zones=without_bounds(90)).findings()["pcp_auto_tuned"]
    assert finding.line == "pcp->high of zone Normal is 60 to 90 by CPU"
    recording = open_recording(write_recording(tmp_path / "made", snapshots=False))
    assert Settings.of(recording).findings() == {}


# Rules shown by later snapshots and drained types; findings kept per recording


# Whether drains drop the lock: from the bulk free's calls, and from pauses between pages


ZONES = ZoneMap.of(parse_zoneinfo(zoneinfo_text(start_free(), {})))
BATCH = int(ZONES.batches()[0])
FIRST = NORMAL.first_free
DRAINS, PAGES = 40, 150
"""Nine steps at a multiple of the batch in each drain."""


def drains(
    *,
    pause: int = 0,
    comm: str = "task",
    count: int = DRAINS,
    order: int = 0,
    events: TimedEvents | None = None,
) -> TimedEvents:
    """Drains that follow a free, or that a kworker does out of the blue."""
    events = events or TimedEvents()
    events.on(cpu=0, pid=7, comm=comm)
    for _ in range(count):
        if comm == "task":
            events.free(FIRST)
        else:
            events.wait(5_000).on(cpu=0, pid=8, comm="task").free(FIRST)
            events.on(cpu=0, pid=7, comm=comm)
        for page in range(PAGES):
            if page and page % BATCH == 0:
                events.wait(pause)
            events.drained(FIRST + page, order=order)
    return events


# The highatomic reserve's rules from kprobes and blocks; the fallback rule from event order


# The high-order flush threshold, from free_count as the events let it be reconstructed
