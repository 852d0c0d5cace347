"""Every control of the explorer, moved in a browser: what the page then draws and says."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace

import pytest
from playwright.sync_api import Page

import pagealloc_model as pm
from pagealloc_model.policy.policy import policy_settings
from pagealloc_model.policy.policy_fields import Setting
from pagealloc_model.predicted.reclaim_mode import choose_reclaim
from pagealloc_model.recording.recording import Recording
from tests.browser.explored_page import Drawn, ExploredPage
from tests.browser.jupyter_lab import Lab, problems_of
from tests.small_recordings import shipped_recording

pytestmark = [pytest.mark.browser, pytest.mark.long]

RECORDING = "highatomic_gate3"
NEEDED: dict[str, dict[str, Setting]] = {"ownership.": {"pageblock_ownership": "pcp_buddy"}}
"""Settings by the beginning of their names, and what they have no bearing without."""


@dataclass(frozen=True, kw_only=True)
class Moved:
    """One value of a control, and what the page made of it.

    Attributes:
        drawn: all that is predicted.
        note: what the page says beside.
    """

    drawn: Drawn
    note: str


NO_MOVES = ("no effect here: ", "nothing moves in this tab; ")
"""How the page says why nothing moves."""


def test_two_values_of_every_control_draw_what_pm_replay_predicts_or_say_why_not(
    page: Page, lab: Lab, artefacts: Path
) -> None:
    recording = shipped_recording(RECORDING)
    problems = problems_of(page)
    explored = ExploredPage(page, lab, recording.path)
    others: dict[str, Setting] = {}
    silent = []
    for name in policy_settings():
        others = put_in_place(explored, needed_by(name), others)
        first, second = (moved(explored, recording, name, others) for _ in range(2))
        if first.drawn == second.drawn and not second.note.startswith(NO_MOVES):
            silent.append(name)
        explored.give_back(name)  # what the page shows next is seen with the next control
    explored.wait_for(pm.Policy.from_settings(others))
    page.screenshot(path=artefacts / "every_control.png")
    assert silent == []
    assert problems == []


def needed_by(name: str) -> dict[str, Setting]:
    """The setting without which another one has no bearing."""
    return next((each for start, each in NEEDED.items() if name.startswith(start)), {})


def put_in_place(
    explored: ExploredPage, wanted: dict[str, Setting], held: dict[str, Setting]
) -> dict[str, Setting]:
    """Give back what is held and not wanted, and choose what is wanted."""
    for name in held.keys() - wanted.keys():
        explored.give_back(name)
        explored.wait_for(pm.Policy())
    for name, value in wanted.items() - held.items():
        explored.choose(name, value)
        explored.wait_for(pm.Policy.from_settings(wanted))
    return wanted


def moved(
    explored: ExploredPage, recording: Recording, name: str, others: dict[str, Setting]
) -> Moved:
    """Move a control; what is drawn is what `pm.replay` predicts, and so is what the code asks."""
    policy = pm.Policy.from_settings({**others, name: explored.move(name)})
    explored.wait_for(policy)
    assumptions = pm.Assumptions(reclaim=choose_reclaim(recording, policy).mode)
    replay = pm.replay(recording, policy, assumptions=assumptions)
    wanted = free_pages(replay)
    # what is the same at all times may be a line below the panels
    moving = {key: each for key, each in wanted.items() if len(set(each)) > 1}
    explored.wait_until_drawn({f"{key}/predicted:1": each for key, each in moving.items()})
    drawn = explored.drawn()
    of_candidate = {key: each for key, each in drawn.items() if key.endswith("/predicted:1")}
    assert sum(of_candidate.pop("fallbacks/predicted:1")["x"]) == replay.fallbacks["count"].sum()
    left = [each["y"] for key, each in of_candidate.items() if key.partition("/")[0] not in wanted]
    assert not any(any(values) for values in left)
    # the comparison in words, the code and the note follow the picture
    explored.wait_until_told(lambda code: asked_by(code, recording)[1:] == [policy.given()])
    assert asked_by(explored.code(), recording) == [policy.given()] * 2
    return Moved(drawn=of_candidate, note=explored.note())


def free_pages(replay: pm.Replay) -> dict[str, list[int]]:
    """Free pages over time by order, and by every migratetype that has any."""
    found = {}
    for key in ("order", "migratetype"):
        for value, rows in replay.free_pages.groupby(key):
            if key == "order" or rows["pages"].any():
                found[str(value)] = rows.groupby("time_ns")["pages"].sum().tolist()
    return found


def asked_by(code: str, recording: Recording) -> list[dict[str, Setting]]:
    """Run the page's code, the replays left out; its candidates, replayed and explored."""
    asked: list[pm.Policy] = []

    def explore(_: Recording, *, base: pm.Policy, candidate: pm.Policy, tab: str) -> None:
        assert (base, tab) == (pm.Policy(), "fragmentation")
        asked.append(candidate)

    def replay(_: Recording, policy: pm.Policy, assumptions: pm.Assumptions) -> None:
        assert assumptions.reclaim == "elastic"  # the recorded kernel reclaimed
        asked.append(policy)

    lines = [line for line in code.splitlines() if not line.startswith(("import ", "print("))]
    stand_in = SimpleNamespace(
        open=pm.open,
        replay=replay,
        explore=explore,
        Policy=pm.Policy,
        Assumptions=pm.Assumptions,
    )
    names: dict[str, object] = {"pm": stand_in}
    exec("\n".join(lines), names)
    assert isinstance(names["rec"], Recording)
    assert names["rec"].path == recording.path
    base, *candidates = asked
    assert base == pm.Policy()
    return [each.given() for each in candidates]
