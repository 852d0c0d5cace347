"""Idle reserves on small synthetic hosts, the tables that ship, and the reply made of them."""

from __future__ import annotations

import email.policy
import re
import subprocess
from dataclasses import replace
from pathlib import Path

import pandas as pd
import pytest
from pagealloc_model.notebooks.studies.highatomic.guest_reserve import index_states
from pagealloc_model.notebooks.studies.highatomic.idle_reserve import (
    ANSWERS,
    BURST_HOST,
    HOST,
    IDLE_HOST,
    LONG_MS,
    QUIET_S,
    SHORT_MS,
    answers_and_costs,
    score_over_time,
    two_by_two,
    why_not_recycled,
)
from pagealloc_model.notebooks.studies.highatomic.idle_reserve_tables import (
    TABLES,
    guest_scores,
    made_table,
    reply,
    shipped_table,
    slowpath_reserves,
)
from pagealloc_model.notebooks.studies.highatomic.reserve_defer import defer_boots
from pagealloc_model.notebooks.studies.highatomic.reserve_reply import (
    COMPARED,
    LOADS,
    SHOWN,
    change_rows,
    cost_rows,
    experiment_rows,
    load_boots,
    load_rows,
    predicted_changes,
    shipped_boots,
    shipped_patch,
)
from pagealloc_model.notebooks.studies.others.figures import score_over_time as figure_of
from pagealloc_model.notebooks.studies.others.full_host import FullHost, run_full_host

import pagealloc_model as pm
from pagealloc_model.base.errors import UsageError
from pagealloc_model.cli import main
from pagealloc_model.numbers.statistics import change_interval

SMALL = replace(
    IDLE_HOST,
    gib=2,
    nr_cpus=2,
    reserved_blocks=10,
    kernel_per_s=0,
    cache_pages_per_s=500,
    huge_per_s=2,
    seconds=20,
)


def test_an_idle_reserve_keeps_proactive_compaction_from_beginning() -> None:
    cells = two_by_two(SMALL, seeds=(0,), defrags=("madvise",)).set_index(["gate", "proactiveness"])
    assert cells.loc[(0, 20), "kcompactd_scanned"] == 0
    assert cells.loc[(0, 20), "thp_success"] < 0.05
    assert cells.loc[(3, 20), "thp_success"] > 0.3 > cells.loc[(3, 0), "thp_success"]
    assert cells.loc[(0, 20), "whole_blocks"] == SMALL.reserved_blocks


def test_the_score_is_below_its_mark_only_if_the_reserve_counts() -> None:
    table = score_over_time(replace(SMALL, seconds=5))
    mainline = table[table["side"] == "mainline"]
    assert (mainline["score"] < 90).all()
    assert (mainline["score_without_reserve"] > 90).all()
    drawn = figure_of({side: rows for side, rows in table.groupby("side")})
    names = {trace.name for trace in drawn.data}
    assert len(drawn.data) == 6 and len(names) == 3


def test_what_leaves_the_reserve_out_of_the_score_keeps_it_for_atomics() -> None:
    burst = replace(BURST_HOST, gib=2, nr_cpus=2, reserved_blocks=10, atomic_per_s=20_000)
    table = answers_and_costs(burst, seeds=(0,)).set_index("answer")
    assert list(table.index) == list(ANSWERS)
    assert table.loc["gate at order 3", "reserved_blocks"] == 0
    assert table.loc["score without HighAtomic", "reserved_blocks"] > 5
    assert table.loc["kcompactd unreserves", "reserved_blocks"] == 0
    for answer in ("score without HighAtomic", "kcompactd unreserves"):
        assert table.loc[answer, "thp_success"] > table.loc["mainline", "thp_success"]
    failed = table["failed_order_3"]
    assert failed["mainline"] <= failed["gate at order 3"]
    assert QUIET_S[1] == burst.atomic_pause_s[1]


def test_scores_of_a_recording_are_those_of_its_snapshots() -> None:
    recording = pm.open("highatomic_stock")
    table = guest_scores({"mainline": recording})
    assert set(table["side"]) == {"mainline"}
    assert table["score"].between(0, 100).all()
    assert table["score_without_reserve"].between(0, 100).all()
    free = recording.measure().free_pages.groupby("time_ns")["pages"].sum()
    assert table["free_pages"].to_list() == free.to_list()
    assert table["reserved_blocks"].max() > 0


@pytest.mark.parametrize("name", TABLES)
def test_tables_ship(name: str) -> None:
    assert len(shipped_table(name))


def test_there_is_no_other_table() -> None:
    with pytest.raises(UsageError, match="no table"):
        shipped_table("other")
    with pytest.raises(UsageError, match="of the model"):
        made_table("guest_scores")


def test_faults_that_reclaim_take_the_reserve_back_and_the_gate_has_none_to_give() -> None:
    begun = replace(SMALL, gib=1, thp_defrag="always", huge_per_s=10, scattered_per_mille=1000)
    rules = pm.KernelRules.preset("6.18")
    mainline, gate = (
        pm.Policy(highatomic_gate_order=order, compaction_proactiveness=0) for order in (0, 3)
    )

    def last(host: FullHost, policy: pm.Policy) -> pd.Series:
        return run_full_host(host, policy, rules=rules).iloc[-1]

    empty = replace(begun, reserved_blocks=0)
    full, gated = last(begun, mainline), last(empty, gate)
    assert full["blocks_given_back"] > begun.reserved_blocks / 2
    assert full["thp_fault_alloc"] > 2 * gated["thp_fault_alloc"]
    pd.testing.assert_series_equal(last(empty, mainline), gated)


def test_only_what_per_cpu_lists_serve_fills_the_reserve() -> None:
    table = why_not_recycled(replace(HOST, atomic_per_s=6_000, seconds=6))
    assert set(table["atomic_ms"]) == {SHORT_MS, LONG_MS}
    assert (table.loc[~table["from_pcp"], "blocks_taken"] == 0).all()
    assert table.loc[table["from_pcp"], "blocks_taken"].sum() > 0
    left = table["blocks_taken"] - table["blocks_given_back"]
    assert (left == table["reserved_blocks"]).all()


def test_the_command_prints_the_reply(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["post", "--reply", "highatomic"]) == 0
    text = capsys.readouterr().out
    assert text == reply().to_text()
    subject = (
        "Subject: Re: [PATCH] mm/page_alloc: skip high atomic reservation at or\n below costly"
    )
    assert text.startswith(subject)
    assert text.isascii() and "nan" not in text.lower().split()
    assert max(map(len, text.splitlines())) <= 72
    assert text.count("\n") <= 35
    assert main(["post", "--reply", "highatomic", "--format", "md"]) == 0
    assert capsys.readouterr().out.startswith("# Re: [PATCH]")


def test_its_table_has_each_boot() -> None:
    """Of 6.12.117 under `defer`: faults served, percent, and thousands of pages scanned."""
    blocks = [block for section in reply().sections for block in section.blocks]
    table = next(block.text for block in blocks if "by boot" in block.text)
    rows = {line.split("  ")[0]: line for line in table.splitlines()}
    boots = defer_boots()
    for side, words in SHOWN.items():
        own = boots[boots["side"] == side].sort_values("thp")
        told = re.findall(r"[\d,]+", rows[words].removeprefix(words))
        served = [f"{each:.0f}," for each in own["thp"]]
        scanned = [f"{each / 1000:.0f}," for each in own["kswapd_scanned"]]
        assert [each.rstrip(",") for each in told] == [
            each.rstrip(",") for each in (*served, *scanned)
        ]


def test_the_reply_s_boots_are_all_that_were_registered() -> None:
    boots = shipped_boots()
    assert boots.groupby("side").size().to_dict() == {
        **dict.fromkeys(("none", "gate", "score", "both"), 5),
        **dict.fromkeys(("none_0", "both_0"), 3),
    }
    changes = change_rows(boots).set_index(["change", "proactiveness"])
    assert changes.loc[("score and index", 20), "change_low"] > 0
    assert changes.loc[("score alone", 20), "change_low"] < 0


def test_the_boots_of_each_load_are_numbered_and_the_first_load_has_three() -> None:
    boots = load_boots()
    for (load, side), own in boots.groupby(["load", "side"]):
        assert load in LOADS and side in COMPARED
        assert sorted(own["boot"]) == list(range(1, len(own) + 1))
    whole = boots[boots["load"] == "whole"]
    assert whole.groupby("side").size().to_dict() == dict.fromkeys(COMPARED, 3)


def test_what_the_mail_says_of_loads_is_in_their_boots() -> None:
    """Points are differences of means, failures of all requests; predictions come from files."""
    boots, rows = load_boots(), load_rows().set_index(["load", "change"])
    whole = boots[boots["load"] == "whole"].groupby("side")["thp"].mean()
    row = rows.loc[(LOADS["whole"], "score and index")]
    assert row["points"] == pytest.approx(100 * (whole["both"] - whole["none"]))
    assert row["change_low"] < row["points"] < row["change_high"]
    assert row["predicted"] == pytest.approx(26, abs=1)
    gated = boots[(boots["load"] == "whole") & (boots["side"] == "gate")]
    failed = 1e4 * gated["failed_order_3"].sum() / gated["asked_order_3"].sum()
    assert rows.loc[(LOADS["whole"], "posted gate"), "failed_order_3"] == pytest.approx(failed)
    costs = cost_rows().set_index(["side", "order"])
    assert costs.loc[("gate", 3), "change"] > costs.loc[("both", 3), "change"]


def test_what_the_mail_calls_not_measurable_is_not_and_what_rises_does() -> None:
    boots = load_boots()
    madvise, first = boots[boots["load"] != "always"], boots[boots["load"] == "whole"]
    earlier = shipped_boots()

    def change(table: pd.DataFrame, before: str, after: str, column: str) -> tuple[float, float]:
        sides = (table.loc[table["side"] == side, column].to_list() for side in (before, after))
        return change_interval(*sides)

    for table, before, after in (
        (earlier, "none", "score"),
        (first, "none", "both"),
        (earlier, "gate", "both"),
        (madvise, "gate", "both"),
    ):
        low, high = change(table, before, after, "thp")
        assert low < 0 < high
    for side in ("gate", "both"):
        for column in ("kswapd_scanned", "kcompactd_scanned"):
            assert change(madvise, "none", side, column)[0] > 0
    assert predicted_changes("load")["both"] < predicted_changes("idle")["both"]


def test_the_patch_is_below_the_mail_as_it_is(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["post", "--reply", "highatomic", "--full"]) == 0
    assert capsys.readouterr().out == f"{reply().to_text()}\n{shipped_patch()}"


def test_numbers_of_the_patch_are_in_the_boots() -> None:
    """Its changelog and notes: boots, means, intervals, costs, and what 7.3.4 has."""
    text = " ".join(shipped_patch().split("diff --git")[0].split())
    boots, loads = shipped_boots(), load_rows().set_index(["load", "change"])
    served = {
        side: [f"{100 * each:.0f}" for each in sorted(own["thp"])]
        for side, own in boots.groupby("side")
    }
    for side, words in (("score", "by boot {} and {}"), ("none", "instead of {} and {}")):
        assert words.format(", ".join(served[side][:-1]), served[side][-1]) in text
    rows = experiment_rows().set_index(["change", "proactiveness"])
    score, both, none = (
        rows.loc[(name, 20)] for name in ("score alone", "score and index", "no change")
    )
    for row, words in (
        (score, "+{points:.0f} points, 95 % interval {change_low:.0f} to {change_high:.0f}"),
        (both, "{thp_success:.0f} % were served (+{points:.0f} points, {change_low:.0f} to"),
        (both, "{kcompactd_scanned:,.0f} pages scanned"),
        (score, "kcompactd scans {kcompactd_scanned:,.0f} pages a minute instead of "),
        (none, " pages a minute instead of {kcompactd_scanned:,.0f}"),
        (loads.loc[(LOADS["whole"], "score and index")], "{points:.0f} points ({change_low:.0f}"),
        (loads.loc[(LOADS["madvise"], "score and index")], "scanned {kcompactd_scanned:,.0f}"),
        (loads.loc[(LOADS["madvise"], "no change")], "instead of {kcompactd_scanned:,.0f}."),
    ):
        assert words.format(**row) in text
    assert "one of them without a reserve" in text
    assert (boots.loc[boots["side"] == "both", "blocks_quiet"] == 0).sum() == 1
    defer = defer_boots()
    told = {side: sorted(own["thp"].round().astype(int)) for side, own in defer.groupby("side")}
    assert "{}, {} and {} % by boot".format(*told["score"]) in text
    assert "instead of {}, {} and {}.".format(*told["none"]) in text
    own_rule = slowpath_reserves().query("slowpath_only == 1 and gate == 0")
    whole = own_rule[own_rule["whole_blocks"] > 0]
    assert len(own_rule) == 3 and whole["whole_blocks"].to_list() == [2, 2]
    assert sorted(whole["reserved_blocks"]) == [5, 6]
    assert "{:.0f} and {:.0f} % of the samples".format(*(100 * whole["held_back"])) in text
    newest = defer[defer["side"].isin(("none_73", "both_73")) & (defer["boot"] <= 2)]
    assert len(newest) == 4 and not newest["whole_quiet"].any()
    states = index_states([pm.open("highatomic_stock")])["index_without"]
    assert f"{states.min()} to {states.max()}" in text and states.min() > 500


def test_git_reads_the_reply_and_the_patch_as_threads_of_their_own(tmp_path: Path) -> None:
    folder, answered = tmp_path / "mails", "20260519012532.1-1-a.b@linux.dev"
    words = ["post", "--reply", "highatomic", "--mbox", str(folder)]
    assert main([*words, "--in-reply-to", f"<{answered}>"]) == 0
    mails = [file.read_bytes() for file in sorted(folder.iterdir())]
    reads = [email.message_from_bytes(mail, policy=email.policy.default) for mail in mails]
    answer, patch = reads
    assert answer["In-Reply-To"] == answer["References"] == f"<{answered}>"
    assert patch["In-Reply-To"] is None and patch["References"] is None
    assert answer["To"].addresses[0].addr_spec == "hannes@cmpxchg.org"
    assert patch["To"].addresses[0].addr_spec == "akpm@linux-foundation.org"
    assert str(answer["Subject"]).startswith("Re: [PATCH] mm/page_alloc: ")
    assert str(patch["Subject"]).startswith("[RFC PATCH] mm/compaction: ")
    for read in reads:
        copied = [each.addr_spec for each in read["Cc"].addresses]
        assert len(set(copied)) == len(copied)
        assert read["To"].addresses[0].addr_spec not in copied
        assert {"linux-mm@kvack.org", "linux-kernel@vger.kernel.org", "fvdl@google.com"} <= {
            *copied
        }
    assert "rppt@kernel.org" in [each.addr_spec for each in patch["Cc"].addresses]
    git = ["git", "mailinfo", tmp_path / "said", tmp_path / "patch"]
    subprocess.run(git, input=mails[1], check=True, stdout=subprocess.DEVNULL)
    assert (tmp_path / "patch").read_text().count("diff --git") == 3


def test_it_is_written_as_mail_and_as_markdown(tmp_path: Path) -> None:
    folder = tmp_path / "reply"
    assert main(["post", "--reply", "highatomic", "-o", str(folder)]) == 0
    assert sorted(file.name for file in folder.iterdir()) == ["post.md", "post.txt"]
    assert (folder / "post.txt").read_text() == reply().to_text()


@pytest.mark.parametrize(
    ("words", "error"),
    [
        (["kbuild", "--reply", "highatomic"], "leave out PATH"),
        (["--reply", "highatomic", "--patch", "pcp_batch=7"], "leave out PATH"),
        (["kbuild"], "needs PATH and --patch"),
        (["--patch", "pcp_batch=7"], "needs PATH and --patch"),
        (["kbuild", "--patch", "pcp_batch=7", "--mbox", "x"], "add --reply NAME"),
        (["--reply", "highatomic", "--mbox", "x"], "--in-reply-to None: give the Message-ID"),
    ],
)
def test_a_reply_stands_alone_and_a_comparison_needs_both(
    words: list[str], error: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["post", *words]) == 2
    assert error in capsys.readouterr().err
