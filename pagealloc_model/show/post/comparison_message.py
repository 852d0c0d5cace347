"""A comparison as a complete message: what, on what, results, caveats, how to reproduce."""

from __future__ import annotations

import shlex
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING

import numpy as np
import pandas as pd

from pagealloc_model.base.charts import ASCII, UTF8, Glyphs, bar_chart, histogram, time_series
from pagealloc_model.base.errors import UsageError
from pagealloc_model.base.result_tables import (
    Style,
    comparison_table,
    error_table,
    in_measure,
    row_words,
)
from pagealloc_model.base.table import Column, Table
from pagealloc_model.base.text import count_of, paragraph
from pagealloc_model.base.version import __version__
from pagealloc_model.policy.policy import Assumptions, policy_settings
from pagealloc_model.recording.recording import shipped_recordings_directory
from pagealloc_model.show.post.message import Block, Fixed, Message, Section, Words, command
from pagealloc_model.show.post.tables import repeated_table
from pagealloc_model.verdict.comparison import (
    BELIEVED,
    FAILS_NULL,
    ONE_SEED,
    UNCHECKED,
    WITHIN_ERROR,
    RepeatedComparison,
    recorded_values,
    repeated,
)
from pagealloc_model.verdict.headline import score_words

if TYPE_CHECKING:
    import pandas as pd

    from pagealloc_model.policy.policy_fields import Setting
    from pagealloc_model.predicted.replay import Replay
    from pagealloc_model.recording.recording import Recording
    from pagealloc_model.verdict.comparison import Comparison
    from pagealloc_model.verdict.validation import Validation


SERIES = ("base", "patch")
SITES = ("refill", "drain", "buddy_alloc", "direct_free")
EMPTY_SITES = ("empty_refill", "empty_buddy_alloc")
"""Attempts that found no page; drawn where there are any."""

LITERAL_LEFT_OUT = "what reclaim and compaction would do otherwise"
NOT_MODELLED = (
    "pages that change hands without an event, and what waiting for zone->lock changes in what is "
    "asked for and freed"
)


def predicted_charts(comparison: Comparison, *, glyphs: Glyphs = ASCII) -> list[str]:
    """zone->lock by site, sizes of refills and drains, and the quantity that changes most.

    Args:
        comparison: base and patch.
        glyphs: characters to draw with.
    """
    replays = (comparison.base, comparison.patch)
    charts = [_by_site(comparison.rows, glyphs)]
    for site in ("refill", "drain"):
        counts = _sizes(replays, site)
        if counts:
            title = f"{site}s by number of pages moved under one zone->lock hold"
            charts.append(histogram(title, counts, SERIES, glyphs=glyphs))
    over_time = _most_changed(replays, OVER_TIME)
    return charts if over_time is None else [*charts, _drawn_over_time(over_time, glyphs)]


def _by_site(rows: pd.DataFrame, glyphs: Glyphs) -> str:
    """Acquisitions of zone->lock by site, as the comparison's table has them."""
    found = rows.set_index("metric")
    bars = {
        site: found.loc[f"{site}_transactions", ["base", "patch"]]
        for site in (*SITES, *EMPTY_SITES)
    }
    values = {
        site: [float(value) for value in pair]
        for site, pair in bars.items()
        if site in SITES or pair.any()
    }
    return bar_chart("zone->lock acquisitions by site", values, SERIES, glyphs=glyphs)


def _sizes(replays: tuple[Replay, Replay], site: str) -> dict[int, list[float]]:
    """Lower end of a bin -> transactions of that many pages, under base and patch."""
    binned = []
    for replay in replays:
        full = replay.transactions_full
        pages = full.loc[(full["site"] == site) & (full["pages"] > 0), "pages"].to_numpy(np.int64)
        low = np.int64(1) << np.floor(np.log2(pages)).astype(np.int64)
        binned.append(pd.Series(1.0, index=low).groupby(level=0).sum())
    seen = sorted({int(low) for counts in binned for low in counts.index})
    if not seen:
        return {}
    every = [1 << power for power in range(seen[0].bit_length() - 1, seen[-1].bit_length())]
    return {low: [float(counts.get(low, 0.0)) for counts in binned] for low in every}


OverTime = tuple[str, np.ndarray, dict[str, np.ndarray]]
OVER_TIME = ("free_pages", "free_in_whole_blocks", "pcp_count", "highatomic_blocks")
"""Metrics of which a sum over all zones can be drawn over time."""


def _drawn_over_time(over_time: OverTime, glyphs: Glyphs) -> str:
    return time_series(*over_time, glyphs=glyphs)


def _most_changed(replays: tuple[Replay, Replay], metrics: Iterable[str]) -> OverTime | None:
    """Of these metrics, the one whose curves lie farthest apart; None if none differ."""
    best, farthest = None, 0.0
    for metric in metrics:
        title, base = _summed(replays[0], metric)
        patch = _summed(replays[1], metric)[1]
        scale = float(np.abs(base.to_numpy()).mean() + np.abs(patch.to_numpy()).mean())
        apart = float(np.abs(patch.to_numpy() - base.to_numpy()).mean()) / (scale or 1.0)
        if apart > farthest:
            seconds = (base.index.to_numpy() - base.index[0]) / 1e9
            series = {"base": base.to_numpy(), "patch": patch.to_numpy()}
            best, farthest = (title, seconds, series), apart
    return best


def _summed(replay: Replay, metric: str) -> tuple[str, pd.Series]:
    """A title, and one of `OVER_TIME` by time, all zones together."""
    if metric == "pcp_count":
        title, table, value = "pages on per-CPU lists (pcp->count)", replay.pcp, "count"
    elif metric == "highatomic_blocks":
        blocks = replay.pageblocks
        title, value = "HighAtomic pageblocks", "blocks"
        table = blocks[blocks["migratetype"] == "HighAtomic"]
    else:
        table, value, title = replay.free_pages, "pages", "free pages"
        if metric == "free_in_whole_blocks":
            table = table[table["order"] >= replay.machine.pageblock_order]
            title = "free pages in buddies of whole pageblocks"
    return f"{title}, all zones", table.groupby("time_ns")[value].sum().astype(float)


SHOWN_ERRORS = (
    "order_distribution_tv",
    "free_pages",
    "refill_pages",
    "refill_transactions",
    "drain_pages",
    "drain_transactions",
    "extfrag_events",
    "highatomic_blocks",
)
PREDICTED = (
    "Predicted by a trace-driven model of the page allocator; nothing below was measured under "
    "the changed policy. Both columns replay the same recorded demand: what was asked for and "
    "freed, when, and on which CPU."
)


def comparison_message(
    comparisons: Comparison | Sequence[Comparison],
    recordings: Recording | Sequence[Recording],
    *,
    validations: Sequence[Validation] = (),
    style: Style = "signed",
    utf8: bool = False,
    reclaim: Iterable[str] = (),
    full: bool = False,
) -> Message:
    """A comparison as a message: one screen, or everything that is needed to judge and repeat it.

    Args:
        comparisons: one per run, all of the same two policies.
        recordings: the recordings of the runs.
        validations: of those recordings, for what is said of the model's own errors.
        style: of the table of a full message.
        utf8: draw charts with block characters instead of ASCII.
        reclaim: sentences on the mode of reclaim and why it was taken.
        full: all rows, charts, errors and assumptions.

    Raises:
        UsageError: no comparison, or comparisons of different policies.
    """
    runs = [comparisons] if not isinstance(comparisons, Sequence) else list(comparisons)
    recordings = [recordings] if not isinstance(recordings, Sequence) else list(recordings)
    whole = repeated(runs)
    first = runs[0]
    reproduce = tuple(_reproduce(whole, recordings, style))
    if full:
        sections = [
            Section(title="What", blocks=tuple(_what(first, reclaim))),
            Section(title="On what", blocks=tuple(_on_what(recordings))),
            Section(title="Results", blocks=tuple(_results(whole, style))),
            Section(title="Charts", blocks=tuple(_charts(first, utf8))),
            Section(title="How far to believe it", blocks=tuple(_errors(validations))),
            Section(title="Assumed", blocks=tuple(_assumed(first))),
            Section(title="Reproduce", blocks=reproduce),
        ]
    else:
        glyphs = UTF8 if utf8 else ASCII
        blocks = tuple(_one_screen(whole, recordings, validations, reclaim, glyphs))
        sections = [Section(title="", blocks=(*blocks, *reproduce))]
    return Message(
        subject=_subject(first, recordings),
        sections=tuple(section for section in sections if section.blocks),
        utf8=utf8,
    )


MOST_ROWS = 12
"""Of the table of a message of one screen."""
MOST_NAMED = 3
"""Changes that its first sentence names."""
CLAIMS = {
    "highatomic_gate_order": (
        "highatomic",
        ("HighAtomic pageblocks per host", "THP success rate", "pgscan_kswapd, all hosts"),
    ),
    "defrag_mode": (
        "defrag_mode",
        ("THP fault alloc", "THP fault fallback", "Pages kswapd scanned"),
    ),
    "pageblock_ownership": ("pcp_buddy", ("system time of simple kernel builds, change",)),
    "pcp_free_batched": (
        "pcp_batching",
        ("calls of free_pcppages_bulk with count > 1000 during boot",),
    ),
}
"""Field of a policy -> the study in data/posted that proposes it, and what is quoted of it."""


def _one_screen(
    whole: RepeatedComparison,
    recordings: Sequence[Recording],
    validations: Sequence[Validation],
    reclaim: Iterable[str],
    glyphs: Glyphs,
) -> Iterator[Block]:
    """The claim, what happens, the rows and a chart of it, how right that is, what is left out."""
    first = whole.comparisons[0]
    claim = posted_claim(_changed_fields(first))
    if claim:
        yield Words(text=claim)
    rows = whole.rows[whole.rows["verdict"].isin(BELIEVED)]
    strength = (rows["patch"] - rows["base"]).abs() / (rows["change_high"] - rows["change_low"])
    order = strength.sort_values(ascending=False, kind="stable").index
    shown = rows.loc[sorted(order[:MOST_ROWS])]
    happens = _happens(first, rows.loc[order], whole.refused)
    yield Words(text=" ".join([happens, *reclaim]))
    if len(shown):
        yield Fixed(text=_believed_table(shown))
    over_time = _most_changed((first.base, first.patch), set(shown["metric"]) & set(OVER_TIME))
    if over_time is not None:
        yield Fixed(text=_drawn_over_time(over_time, glyphs))
    yield Words(text=_how_right(len(whole.comparisons), validations, has_rows=bool(len(shown))))
    yield Words(text=_left_aside(whole, len(rows) - len(shown)))
    for recording in dict.fromkeys(recordings):
        yield Words(text=_recorded_words(recording), bullet=True)


def posted_claim(fields: Iterable[str]) -> str:
    """What was reported of the proposal that one of these policy fields stands for, or ""."""
    changed = set(fields)
    study, quantities = next((CLAIMS[name] for name in CLAIMS if name in changed), ("", ()))
    if not study:
        return ""
    try:
        posted = posted_figures(study)
    except UsageError:  # a copy without the posted figures
        return ""
    found = []
    for quantity in quantities:
        mine = posted[posted["quantity"] == quantity].set_index("variant")
        unit = str(mine["unit"].iloc[0]).replace("%", "")
        values = mine["value"].reindex(["unpatched", "patched"]).dropna()
        found.append(f"{quantity}: {' -> '.join(values)} {unit}".rstrip())
    source = posted[posted["quantity"] == quantities[0]].iloc[0]
    machine = str(source["machine"]).removeprefix("not named").removeprefix("; ")
    return (
        f'"{source["subject"]}" ({source["date"]}, {source["address"]}) reports'
        f"{f' ({machine})' if machine else ''}: {'; '.join(found)}."
    )


def _changed_fields(comparison: Comparison) -> list[str]:
    sides = [each.policy.given() for each in (comparison.base, comparison.patch)]
    return [name for name in policy_settings() if sides[0].get(name) != sides[1].get(name)]


def _happens(comparison: Comparison, rows: pd.DataFrame, refused: str) -> str:
    """One sentence: what is set, and the strongest changes that can be believed."""
    setting = "; ".join(_change_words(comparison, name) for name in _changed_fields(comparison))
    setting = setting or comparison.footer().policy_difference
    if refused:
        return f"{setting}. No change that is predicted can be believed: {refused}."
    if not len(rows):
        return f"{setting}. No predicted change is larger than the model's error on this recording."
    named = [
        f"{row_words(row)} {'up' if row.patch > row.base else 'down'} "
        f"{_amount(in_measure(row, row.patch - row.base))}"
        for row in rows.drop_duplicates("metric").head(MOST_NAMED).itertuples()
    ]
    return f"{setting}. For the recorded demand the model predicts {', '.join(named)}."


def _change_words(comparison: Comparison, name: str) -> str:
    """Such as "vm.min_free_kbytes goes from 45056 to 90112 kB"."""
    about = policy_settings()[name].metadata
    recorded = recorded_values(comparison.base)
    recording = comparison.base.recording
    known = {} if recording is None else recording.meta.get("sysctl") or {}
    before, after = (
        side.policy.given().get(name, recorded.get(name, known.get(name)))
        for side in (comparison.base, comparison.patch)
    )
    unit = "" if about["unit"] in ("", "order") else f" {about['unit']}"
    start = "is set to" if before is None else f"goes from {_setting(before)} to"
    return f"{about['kernel_name']} ({about['meaning']}) {start} {_setting(after)}{unit}"


def _amount(change: str) -> str:
    """Such as "25.0 %", of "+25.0%"."""
    amount = change.lstrip("+-")
    for ending, words in (("%", " %"), ("pt", " percentage points"), ("n", "")):
        if amount.endswith(ending):
            return amount.removesuffix(ending) + words
    return amount


def _believed_table(rows: pd.DataFrame) -> str:
    titles = ("recorded", "patch", "change", "95 % interval", "")
    cells = []
    for row in rows.itertuples():
        words = row_words(row, place=", ")
        unit = f" ({row.unit})" if row.unit and row.unit not in words else ""
        amounts = (row.patch - row.base, row.change_low, row.change_high)
        change, low, high = (in_measure(row, each) for each in amounts)
        values = (_rounded(row.base), _rounded(row.patch), change, f"{low} to {high}", row.verdict)
        cells.append((words + unit, *values))
    return Table((Column(title="predicted", words=True), *titles), cells, grouped=False).to_text()


def _rounded(value: float) -> str:
    return f"{value:,.0f}" if abs(value) >= 100 else f"{value:.3g}"


def _how_right(runs: int, validations: Sequence[Validation], *, has_rows: bool) -> str:
    """One paragraph: what the intervals hold, and the model on the recording as it was."""
    over = f"{runs} runs and windows" if runs > 1 else "windows"
    words = (
        f"The interval is that between two runs, from {over} of the recording, the model's error "
        "included. "
        if has_rows
        else ""
    )
    if not validations:
        return f"{words}The model was not held to the recording."
    told = "; ".join(each.headline for each in validations)
    return f"{words}How right the model is under the recorded policy: {told}."


def _left_aside(whole: RepeatedComparison, more: int) -> str:
    """One paragraph: rows that are not shown, and what is not modelled."""
    counts = whole.rows["verdict"].value_counts()
    told = [
        f"{counts[word]} {words}"
        for word, words in (
            (WITHIN_ERROR, "within the model's error"),
            (UNCHECKED, "of what nothing recorded shows"),
            (ONE_SEED, "of rare events that need several seeds"),
            (FAILS_NULL, "no better than a null model's"),
        )
        if counts.get(word, 0)
    ]
    told = [f"{more} smaller ones", *told] if more else told
    rest = f"Changes not shown: {', '.join(told)}. " if told else ""
    is_elastic = whole.comparisons[0].base.assumptions.reclaim == "elastic"
    also = "" if is_elastic else f"{LITERAL_LEFT_OUT}; "
    return f"{rest}Not modelled: {also}{NOT_MODELLED}."


def _recorded_words(recording: Recording) -> str:
    trace = recording.trace
    first, last = trace.span_ns
    return (
        f"Recorded: {recording.name}, kernel {recording.release or 'unknown'}, "
        f"{count_of(trace.nr_cpus, 'CPU')}, {(last - first) / 1e9:.1f} s, "
        f"{count_of(len(trace), 'page-allocator event')}, {trace.losses.total:,} lost, "
        f"{count_of(len(recording.snapshots), 'snapshot')}."
    )


def shown_rows(rows: pd.DataFrame) -> pd.DataFrame:
    """The rows of a comparison that a post prints: known, and not zero on both sides."""
    known = rows["base"].notna() | rows["patch"].notna()
    return rows[known & ((rows["base"] != 0) | (rows["patch"] != 0))].reset_index(drop=True)


def _subject(comparison: Comparison, recordings: Sequence[Recording]) -> str:
    names = ", ".join(dict.fromkeys(recording.name for recording in recordings))
    return f"[predicted] {comparison.patch.asked_policy} on {names}"


def _what(comparison: Comparison, reclaim: Iterable[str]) -> Iterator[Block]:
    yield Words(text=" ".join([PREDICTED, *reclaim]))
    for name in _changed_fields(comparison):
        yield Words(text=f"{_change_words(comparison, name)}.", bullet=True)


def _setting(value: Setting | None) -> str:
    return "as recorded" if value is None else value if isinstance(value, str) else str(int(value))


def _on_what(recordings: Sequence[Recording]) -> Iterator[Block]:
    for recording in {recording.name: recording for recording in recordings}.values():
        yield Words(text=f"{_recorded_words(recording)} SHA-256 of its events:", bullet=True)
        yield Fixed(text=f"    {recording.sha256}")


def _results(whole: RepeatedComparison, style: Style) -> Iterator[Block]:
    rows = shown_rows(whole.rows)
    yield Words(text=whole.believable)
    if len(whole.comparisons) == 1:
        yield Fixed(text=comparison_table(rows, whole.comparisons[0].footer(), style=style))
    else:
        shown = RepeatedComparison(comparisons=whole.comparisons, rows=rows)
        yield Fixed(text=repeated_table(shown, style=style))
        yield Fixed(text=whole.comparisons[0].footer().to_text())
    mode = whole.comparisons[0].base.assumptions.reclaim
    yield from _left_out(whole.rows, is_elastic=mode == "elastic")


def _left_out(rows: pd.DataFrame, *, is_elastic: bool) -> Iterator[Block]:
    zero = rows[(rows["base"] == 0) & (rows["patch"] == 0)]
    if len(zero):
        names = ", ".join(dict.fromkeys(zero["metric"]))
        yield Words(
            text=f"Zero on both sides, hence not in the table (in all or some zones): {names}."
        )
    unknown = rows[rows["base"].isna() & rows["patch"].isna()]
    if len(unknown):
        names = ", ".join(dict.fromkeys(unknown["metric"]))
        yield Words(
            text=f"Not modelled, hence NA: {names}."
            + ("" if is_elastic else " A literal replay repeats the recorded reclaim.")
        )


def _charts(comparison: Comparison, utf8: bool) -> Iterator[Block]:
    for chart in predicted_charts(comparison, glyphs=UTF8 if utf8 else ASCII):
        yield Fixed(text=chart)
    yield Words(text=f"Not modelled: {NOT_MODELLED}.")


def _errors(validations: Sequence[Validation]) -> Iterator[Block]:
    for validation in validations:
        errors = validation.errors
        chosen = errors["metric"].isin(SHOWN_ERRORS) & ~errors["scope"].str.startswith("cpu=")
        yield Words(text=f"Under the policy that {validation.recording.name} was recorded with:")
        yield Fixed(text=error_table(errors[chosen & (errors["scope"] != "per time bin")]))


def _assumed(comparison: Comparison) -> Iterator[Block]:
    base = comparison.base
    yield Words(text=f"Rules: {base.rules_origin}.", bullet=True)
    inferred = sum(each.standing == "inferred" for each in base.rule_evidence)
    if inferred:
        told = f"{count_of(inferred, 'rule')} inferred, not read in that kernel's source"
        yield Words(text=f"{told}: `pagealloc info` names them.", bullet=True)
    defaults = asdict(Assumptions())
    assumed = [
        f"{name} {value}"
        for name, value in asdict(base.assumptions).items()
        if value != defaults[name] and not isinstance(value, dict)
    ]
    told = f"{', '.join(assumed)}; all others by default" if assumed else "all by default"
    yield Words(text=f"Assumptions: {told}; seed {base.seed}.", bullet=True)
    for line in base.start_state:
        yield Words(text=f"Start: {line}.", bullet=True)


def _reproduce(
    whole: RepeatedComparison, recordings: Sequence[Recording], style: Style
) -> Iterator[Block]:
    first = whole.comparisons[0]
    names = dict.fromkeys(recording.name for recording in recordings)
    words = ["pagealloc", "post", *map(shlex.quote, names)]
    for side in ("base", "patch"):
        given = getattr(first, side).asked_policy.given()
        if given:
            settings = (f"{name}={_setting(value)}" for name, value in given.items())
            words += [f"--{side}", ",".join(settings)]
    seeds = {comparison.base.seed for comparison in whole.comparisons}
    words += [f"--seeds {len(seeds)}"] if len(seeds) > 1 else []
    words += [f"--style {style}"] if style != "signed" else []
    mode = first.base.assumptions.reclaim
    words += [f"--reclaim {mode}"] if mode != Assumptions().reclaim else []
    yield command(" ".join(words))
    version = first.footer().version
    yield Words(text=f"with pagealloc_model {version}; --full has every row, chart and assumption.")
    if first.base.assumptions != Assumptions(reclaim=mode):
        yield Fixed(text=paragraph(f"assumptions={first.base.assumptions}"))


def figure_title(comparison: Comparison) -> str:
    """Return one line: what differs between the sides, and on what recording."""
    return f"{comparison.footer().policy_difference}, predicted for {comparison.base.name}"


def figure_caption(
    comparison: Comparison, validation: Validation, path: str, base: str, patch: str
) -> str:
    """Return the caption as one paragraph.

    Args:
        comparison: what is drawn on the left.
        validation: what is drawn on the right, of the same recording.
        path: of the recording, as given to the command.
        base: policy of the base side, as given to the command.
        patch: of the other side.
    """
    footer, recording = comparison.footer(), comparison.base.recording
    release = "" if recording is None else f" (kernel {recording.release})"
    words = ["pagealloc", "post", str(path), *(["--base", base] if base else [])]
    command = shlex.join([*words, "--patch", patch, "--figure", "FILE"])
    lost = (
        f"{count_of(comparison.base.losses, 'event')} lost"
        if comparison.base.losses
        else "no event lost"
    )
    return (
        f"Left: predicted effect of {footer.policy_difference} on the demand of "
        f"{comparison.base.name}{release}, {lost}; bars are 95 % intervals over windows of the "
        "recording, widened by the model's error. Right: the model under the recorded policy, "
        f"held to the recording: {score_words(validation.scores)}. "
        f"Made by: {command} (pagealloc_model {__version__})."
    )


def posted_figures(study: str) -> pd.DataFrame:
    """The posted values of one study, with where and when they were posted.

    Columns: subject, address (list or message id), date, machine, variant ("unpatched",
    "patched"), quantity, value (as posted), low and high (its range as numbers), unit.

    Args:
        study: name of a file in data/posted without ".csv", such as "highatomic".

    Raises:
        UsageError: there is no such study.
    """
    import pandas as pd

    data = shipped_recordings_directory()
    path = data / "posted" / f"{study}.csv" if data else None
    if path is None or not path.is_file():
        known = sorted(each.stem for each in (data / "posted").glob("*.csv")) if data else []
        raise UsageError(f"no posted figures for {study!r}; there are {', '.join(known) or 'none'}")
    return pd.read_csv(path, dtype={"value": str})
