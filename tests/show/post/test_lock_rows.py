"""The first table of a lock study: its numbers are the model's, its words the recording's."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

import pagealloc_model as pm
from pagealloc_model.base.text import TERMINAL
from pagealloc_model.cli import main
from pagealloc_model.numbers import locks
from pagealloc_model.numbers.errors import recorded_lock_model
from pagealloc_model.numbers.vocabulary import LOCK_TIMES
from pagealloc_model.recording.trace.columns import Event
from pagealloc_model.show.post import lock_rows
from pagealloc_model.show.post.lock_rows import (
    freed_elsewhere,
    is_about_locks,
    load_words,
    lock_table,
)
from pagealloc_model.show.post.tables import spread_table


@pytest.fixture(scope="module")
def xfree(shipped: Callable[[str], Path]) -> pm.Recording:
    return pm.open(shipped("xfree"))


def test_frees_on_another_cpu_are_counted_page_by_page(xfree: pm.Recording) -> None:
    trace = xfree.trace
    cpu_of: dict[int, int] = {}
    moved = []
    for event, pfn, cpu in zip(
        trace.event.tolist(), trace.pfn.tolist(), trace.cpu.tolist(), strict=True
    ):
        if event == Event.ALLOC:
            cpu_of[pfn] = cpu
        elif event == Event.FREE and pfn in cpu_of:
            moved.append(cpu_of.pop(pfn) != cpu)
    assert freed_elsewhere(xfree) == pytest.approx(np.mean(moved))


def test_the_words_say_what_the_load_is(xfree: pm.Recording) -> None:
    words = load_words(xfree)
    assert words.startswith("The load (`xfree 4 100`) has ")
    assert "by xfree (99 %)" in words and "98.8 % are freed on another CPU" in words


def test_holds_are_those_of_all_paths(xfree: pm.Recording) -> None:
    model = recorded_lock_model(xfree)
    base, patch = (
        pm.replay(xfree, policy) for policy in (None, pm.Policy(pageblock_ownership="pcp_buddy"))
    )
    lines = lock_table(base, patch, model).splitlines()[2:]
    cells = (re.split(r"\s{2,}", line.strip()) for line in lines)
    rows = {name: values for name, *values in cells}
    holds = [len(side.lock_times(model).acquisitions) for side in (base, patch)]
    shown = [int(cell.split()[0].replace(",", "")) for cell in rows["zone->lock: holds"]]
    assert shown == holds
    failed = patch.lock_times(model).trylocks[["frees", "allocations"]].sum().sum()
    assert rows["pcp->lock: failed tries"][1].split()[0] == f"{failed:,.0f}"
    spell = patch.lock_times(model).stalls["longest_spell_ns"].max() / 1e3
    assert rows["longest spell (us)"][1].split()[0] == f"{spell:,.0f}"


def test_only_changes_of_who_holds_a_lock_have_it() -> None:
    assert is_about_locks(["pcp_free_batched"]) and is_about_locks(["ownership.remote_free"])
    assert not is_about_locks(["pcp_batch", "highatomic_gate_order"])


def test_a_new_row_is_in_every_table_of_locks(
    xfree: pm.Recording, monkeypatch: pytest.MonkeyPatch
) -> None:
    spells = next(row for row in LOCK_TIMES if row.name.startswith("longest spell"))
    new = replace(spells, name="spell", words="zone->lock: spell")
    for module in (locks, lock_rows):
        monkeypatch.setattr(module, "LOCK_TIMES", (*LOCK_TIMES, new))
    replay = pm.replay(xfree)
    assert "zone->lock: spell (us)" in lock_table(replay, replay, recorded_lock_model(xfree))
    times = replay.lock_times()
    spread = locks.with_spread(times)
    longest = times.spells()["ns"].max() / 1e3
    assert spread.set_index("result").loc["spell (us)", "value"] == longest
    assert "  spell (us)" in spread_table(spread)
    assert "\nspell (us)\n" in locks.lock_policy_table(times, times, "both")


@pytest.mark.parametrize("policy", ["", "pcp_free_batched=1"])
@pytest.mark.parametrize("name", ["xfree", "highatomic_stock"])
def test_the_command_answers_first_and_in_25_lines(
    name: str, policy: str, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ["locks", name, *(["--patch", policy] if policy else [])]
    assert main(words) == 0
    printed = capsys.readouterr().out
    assert printed.count("\n") <= 25 and max(map(len, printed.splitlines())) <= TERMINAL
    first = f"{name}, {policy}" if policy else name
    assert printed.startswith(f"{first}: zone->lock is taken ")
    table = printed.split("\n\n")[1].splitlines()[2:]
    cells = {one: rest for one, *rest in (re.split(r"\s{2,}", line.strip()) for line in table)}
    counts = {
        one: [int(word.replace(",", "")) for word in rest[1:]]
        for one, rest in cells.items()
        if "." not in rest[1] and "(" not in rest[1]
    }
    sites = [each for one, each in counts.items() if one not in ("holds", "contended")]
    assert len(sites) >= 4 and counts["holds"] == [sum(side) for side in zip(*sites, strict=True)]
    assert main([*words, "--full"]) == 0
    full = capsys.readouterr().out
    assert full.startswith(printed.split("Times rest on")[0]) and "\nNotes:\n" in full
    assert ("\nSign rule: " in full) == bool(policy)


def test_contended_acquisitions_are_those_of_the_error_table(
    xfree: pm.Recording, capsys: pytest.CaptureFixture[str]
) -> None:
    """Waits of functions that the model has no site for, which xfree has, are on neither side."""
    assert main(["locks", "xfree"]) == 0
    row = re.search(r"^ +contended +(\d+) +(\d+)$", capsys.readouterr().out, re.MULTILINE)
    errors = pm.validate(xfree).errors.set_index(["metric", "scope"])
    expected = errors.loc[("contended_acquisitions", "all"), ["measured", "predicted"]]
    assert row is not None and [float(cell) for cell in row.groups()] == expected.tolist()


def test_json_has_the_other_policy_too(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["locks", "xfree", "--patch", "pcp_free_batched=1", "--json"]) == 0
    printed = json.loads(capsys.readouterr().out)
    assert printed["patch"] == {"pcp_free_batched": 1}
    assert {"metric", "scope", "base", "patch"} <= set(printed["by_policy"][0])
    assert main(["locks", "xfree", "--patch", "pcp_free_batched=1", "--csv"]) == 2
    assert "leave out --patch" in capsys.readouterr().err
