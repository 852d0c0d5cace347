"""A comparison as a complete message: what, on what, results, caveats, how to reproduce."""

from __future__ import annotations

import re
import shlex
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

from pagealloc_model.allocator.sites import EMPTY_SITES, MOVING
from pagealloc_model.base.errors import UsageError
from pagealloc_model.base.table import Column, Table
from pagealloc_model.base.text import count_of, paragraph
from pagealloc_model.base.version import __version__
from pagealloc_model.numbers import comparison as verdicts
from pagealloc_model.numbers import vocabulary as voc
from pagealloc_model.numbers.comparison import (
    RepeatedComparison,
    guest_words,
    recorded_values,
    repeated,
)
from pagealloc_model.numbers.errors import recorded_lock_model
from pagealloc_model.numbers.result_tables import (
    Style,
    comparison_table,
    error_table,
    in_measure,
    measures,
    row_words,
)
from pagealloc_model.numbers.statistics import SHARE
from pagealloc_model.numbers.validation import NULL_MODELS, near, score_words, usual_seeds
from pagealloc_model.numbers.values import Quantity, States, Zones
from pagealloc_model.policy.policy import Assumptions, policy_settings
from pagealloc_model.predicted.reclaim_mode import choose_reclaim, in_force
from pagealloc_model.recording.provenance import USABLE
from pagealloc_model.recording.recording import shipped_recordings_directory
from pagealloc_model.show.post.charts import ASCII, UTF8, Glyphs, bar_chart, histogram, time_series
from pagealloc_model.show.post.lock_rows import is_about_locks, load_words, lock_table, lock_words
from pagealloc_model.show.post.message import Block, Fixed, Message, Words, command, sections_of
from pagealloc_model.show.post.tables import repeated_table

if TYPE_CHECKING:
    from pagealloc_model.numbers.comparison import Comparison
    from pagealloc_model.numbers.validation import Validation
    from pagealloc_model.policy.policy_fields import Setting
    from pagealloc_model.predicted.replay import Replay
    from pagealloc_model.recording.recording import Recording


SERIES = ("base", "patch")
NOT_MODELLED = (
    "pages that change hands without an event, and how waits for zone->lock change the demand"
)


def predicted_charts(comparison: Comparison, *, glyphs: Glyphs = ASCII) -> list[str]:
    """zone->lock by site, sizes of refills and drains, and the quantity that changes most."""
    replays = (comparison.base, comparison.patch)
    rows = comparison.rows.set_index("metric")[list(SERIES)]
    # attempts that found no page where there are any
    bars = {site: rows.loc[f"{site}_transactions"] for site in (*MOVING, *EMPTY_SITES)}
    values = {
        site: pair.astype(float).tolist()
        for site, pair in bars.items()
        if site in MOVING or pair.any()
    }
    charts = [bar_chart("zone->lock acquisitions by site", values, SERIES, glyphs=glyphs)]
    for site in ("refill", "drain"):
        sizes = {}
        for side, replay in zip(SERIES, replays, strict=True):
            full = replay.transactions_full
            is_shown = (full["site"] == site) & (full["pages"] > 0)
            powers = np.log2(full.loc[is_shown, "pages"].to_numpy(np.int64)).astype(int)
            sizes[side] = pd.Series(powers).value_counts()
        # a row for each power of two, those between two others included
        counts = pd.DataFrame(sizes)
        if len(counts):
            counts = counts.reindex(range(counts.index.min(), counts.index.max() + 1))
            bins = {
                1 << power: row
                for power, row in zip(
                    counts.index, counts.fillna(0).to_numpy(float).tolist(), strict=True
                )
            }
            title = f"{site}s by number of pages moved under one zone->lock hold"
            charts.append(histogram(title, bins, SERIES, glyphs=glyphs))
    return charts + _most_changed(_in_all_zones(replays, rows.index), glyphs)


Sides = tuple[Quantity, ...]
"""One state over time, of the base and of the patch."""


def _in_all_zones(
    replays: tuple[Replay, Replay], metrics: Collection[str]
) -> Iterator[tuple[str, Sides]]:
    """States of these metrics in all zones together, by their titles."""
    tables = [
        Zones(states=States.of_replay(replay), block_order=replay.machine.counted_order)
        for replay in replays
    ]
    for number in (row for row in voc.STATES if row.name in metrics):
        sides = tuple(number.quantity(number.make(table), "all") for table in tables)
        yield f"{row_words(sides[0])}, all zones", sides


def _in_each_zone(
    replays: tuple[Replay, Replay], rows: pd.DataFrame
) -> Iterator[tuple[str, Sides]]:
    """States that rows are about, in their zones, by their titles."""
    of_sides = [
        {(one.metric, one.scope): one for one in voc.by_zone(States.of_replay(of), of.machine)}
        for of in replays
    ]
    for row in rows.itertuples():
        sides = tuple(side[row.metric, row.scope] for side in of_sides if _key(row) in side)
        if len(sides) == len(replays):
            yield row_words(row), sides


def _key(row: Any) -> tuple[str, str]:
    """What a row is about."""
    return row.metric, row.scope


def _most_changed(states: Iterable[tuple[str, Sides]], glyphs: Glyphs) -> list[str]:
    """A chart of the state whose curves lie farthest apart; [] if none differ."""
    chart, farthest = [], 0.0
    for title, sides in states:
        times, (base, patch) = sides[0].time_ns, (side.values for side in sides)
        if times.shape != base.shape:  # nothing dates it
            continue
        scale = float(np.abs(base).mean() + np.abs(patch).mean())
        apart = float(np.abs(patch - base).mean()) / (scale or 1.0)
        if apart > farthest:
            farthest, curves = apart, dict(zip(SERIES, (base, patch), strict=True))
            chart = [time_series(title, (times - times[0]) / 1e9, curves, glyphs=glyphs)]
    return chart


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
    reproduce = list(_reproduce(whole, recordings, style))
    glyphs = UTF8 if utf8 else ASCII
    sections: dict[str, list[Block]] = {}
    names = ", ".join(dict.fromkeys(recording.name for recording in recordings))
    subject = f"mm/page_alloc: predicted effect of {first.patch.asked_policy} on {names}"
    thread = posted_figures_of(first.changed_fields)
    if thread is not None:
        subject = f"Re: {thread['subject'].iloc[0]}"

    def message() -> Message:
        return Message(subject=subject, sections=sections_of(sections), utf8=utf8)

    if full:
        changes = [f"{_change_words(first, name)}." for name in first.changed_fields]
        charts = [Fixed(text=chart) for chart in predicted_charts(first, glyphs=glyphs)]
        sections["What"] = [Words(text=" ".join([PREDICTED, *reclaim])), *_bullets(changes)]
        sections["On what"] = []
        for recording in {recording.name: recording for recording in recordings}.values():
            words = f"{_recorded_words(recording)} SHA-256 of its events:"
            sections["On what"] += [*_bullets([words]), Fixed(text=f"    {recording.sha256}")]
        sections["Results"] = list(_results(whole, style))
        sections["Charts"] = [*charts, Words(text=f"Not modelled: {NOT_MODELLED}.")]
        sections["How far to believe it"] = []
        for validation in validations:
            words = f"Under the policy that {validation.recording.name} was recorded with:"
            errors = validation.errors
            chosen = errors["metric"].isin(voc.SUMMARISED) & ~errors["scope"].str.startswith("cpu=")
            table = error_table(errors[chosen & (errors["scope"] != "per time bin")])
            sections["How far to believe it"] += [Words(text=words), Fixed(text=table)]
        sections["Assumed"] = _bullets(_assumed(first))
        sections["Reproduce"] = reproduce
        return message()
    fewer = ((rows, False) for rows in (MOST_ROWS, *range(FEW_ROWS, 0, -1)))
    for rows, with_chart in ((MOST_ROWS, True), *fewer):
        blocks = _one_screen(whole, recordings, validations, reclaim, glyphs, rows)
        blocks = [block for block in blocks if with_chart or not isinstance(block, _Chart)]
        sections[""] = [*blocks, *reproduce]
        if message().to_text().count("\n") <= MOST_LINES:
            break
    return message()


def nothing_to_post(
    comparisons: Sequence[Comparison], validations: Sequence[Validation] = ()
) -> str:
    """Why comparisons of the same two policies make no message, "" if they make one.

    There is none of a recording that validation doubts or of which nothing is predicted, and none
    without a change beyond the model's error.
    """
    whole = repeated(comparisons)
    if whole.refused:
        return whole.refused
    names = ", ".join(dict.fromkeys(comparison.base.name for comparison in comparisons))
    if not len(_told(whole)):
        return f"no predicted change is larger than the model's error on {names}"
    if validations and not any(len(near(validation.scores)) for validation in validations):
        return f"under the recorded policy no quantity of {names} is predicted within 25 %"
    return ""


_WHOLE, _NOT_RESERVED = "free_in_whole_blocks", "free_in_whole_blocks_not_highatomic"


def _told(whole: RepeatedComparison) -> pd.DataFrame:
    """Rows that can be believed, but for those that tell nothing more than another one.

    Free pages in whole blocks without the reserve are told where the reserve has some, and whole
    blocks where there is one on either side, in the mean.
    """
    rows = whole.rows[whole.rows["verdict"].isin(verdicts.BELIEVED)]
    block = 1 << whole.comparisons[0].base.machine.counted_order
    is_whole = rows["metric"].isin((_WHOLE, _NOT_RESERVED))
    is_less = is_whole & (rows[[*SERIES]].max(axis=1) < block)
    others = rows[rows["metric"] == _WHOLE].set_index("scope")[[*SERIES]]
    same = rows[[*SERIES]].eq(others.reindex(rows["scope"]).set_axis(rows.index)).all(axis=1)
    return rows[~is_less & ~(same & (rows["metric"] == _NOT_RESERVED))]


def _bullets(lines: Iterable[str]) -> list[Block]:
    return [Words(text=line, bullet=True) for line in lines]


MOST_LINES = 60
"""Of a message of one screen: its chart goes before its rows do."""
MOST_ROWS, FEW_ROWS = 12, 4
"""Of its table; the latter and fewer where it is too long without its chart, too."""
MOST_NAMED = 3
"""Changes that its first sentence names."""
_LEFT_OUT = {verdicts.UNCHECKED: "of quantities that the recording does not show"}
"""Why changes are not in a message, where it says so in other words than a comparison."""
_KSWAPD = ("reclaim_scanned", "kswapd")
CLAIMS: dict[str, tuple[str, dict[str, tuple[str, str] | None]]] = {
    "highatomic_gate_order": (
        "highatomic",
        {
            "HighAtomic pageblocks per host": None,
            "THP success rate": ("thp_success", "all"),
            "pgscan_kswapd, all hosts": _KSWAPD,
        },
    ),
    "defrag_mode": (
        "defrag_mode",
        {
            "THP fault alloc": ("thp_fault_alloc", "all"),
            "THP fault fallback": ("thp_fault_fallback", "all"),
            "Pages kswapd scanned": _KSWAPD,
        },
    ),
    "pageblock_ownership": ("pcp_buddy", {"system time of simple kernel builds, change": None}),
    "pcp_free_batched": (
        "pcp_batching",
        {"calls of free_pcppages_bulk with count > 1000 during boot": None},
    ),
}
"""Field of a policy -> the study in data/posted that proposes it, and what is quoted of it, with
the metric and the scope of a comparison that are the same, None if none is."""


class _Chart(Fixed):
    """Left out where a message is too long."""


def _one_screen(
    whole: RepeatedComparison,
    recordings: Sequence[Recording],
    validations: Sequence[Validation],
    reclaim: Iterable[str],
    glyphs: Glyphs,
    most_rows: int,
) -> Iterator[Block]:
    """The claim, what happens, the rows and a chart of it, how right that is, what is left out."""
    first = whole.comparisons[0]
    changed = first.changed_fields
    claim = posted_claim(changed)
    if claim:
        yield Words(text=f"{claim} {_claim_here(whole)}")
    rows = _told(whole)
    strength = (rows["patch"] - rows["base"]).abs() / (rows["change_high"] - rows["change_low"])
    order = strength.sort_values(ascending=False, kind="stable").index
    shown = rows.loc[sorted(order[:most_rows])]
    setting = "; ".join(_change_words(first, name) for name in changed)
    named = [
        f"{row_words(row)} {'up' if row.patch > row.base else 'down'} "
        f"{_amount(in_measure(row, row.patch - row.base))}"
        for row in rows.loc[order].drop_duplicates("metric").head(MOST_NAMED).itertuples()
    ]
    setting = setting or first.footer().policy_difference
    happens = [f"{setting}.", f"For the recorded demand the model predicts {', '.join(named)}."]
    if is_about_locks(changed):
        model = recorded_lock_model(recordings[0])
        yield Fixed(text=lock_table(first.base, first.patch, model))
        yield Words(text=f"{load_words(recordings[0])} {lock_words(model)}".strip())
        happens = happens[:1]
    yield Words(text=" ".join([*happens, *reclaim]))
    measured = _measured(whole)
    yield Fixed(text=_believed_table(shown, measured))
    for chart in _most_changed(_in_each_zone((first.base, first.patch), shown), glyphs):
        yield _Chart(text=chart)
    seeds = max(comparison.seeds for comparison in whole.comparisons)
    over = f"{seeds} seeds and windows" if seeds > 1 else "windows"
    right = (
        f"{'Predicted' if measured else 'Base'} and patch are the model's. The interval is that of "
        f"the change between two runs, from {over} of the recording, with the model's error added."
    )
    if validations:
        headlines = ". ".join(validation.headline for validation in validations)
        right += f" Held to the recording under its own policy, {headlines}."
        guests = guest_words(changed, first.base.assumptions.reclaim)
        right = f"{right} {guests}".rstrip()
    yield Words(text=right)
    counts = whole.rows["verdict"].value_counts()
    more = len(rows) - len(shown)
    left = [count_of(more, "smaller one")] if more else []
    unproven = whole.rows[whole.rows["verdict"] == verdicts.UNPROVEN]
    if len(unproven):
        one = next(unproven.itertuples())
        amount = _amount(in_measure(one, one.patch - one.base), sign=True)
        left.append(
            f"{len(unproven)} beyond the model's error but unproven, a null model being as near "
            f"({row_words(one)} {amount})"
        )
    for verdict, words in (verdicts.REASONS | _LEFT_OUT).items():
        is_left = counts.get(verdict, 0) and verdict not in (verdicts.SAME, verdicts.UNPROVEN)
        left += [f"{counts[verdict]} {words}"] if is_left else []
    rest = f"Changes left out: {', '.join(left)}. " if left else ""
    is_elastic = first.base.assumptions.reclaim == "elastic"
    also = "" if is_elastic else "what reclaim and compaction would do otherwise; "
    yield Words(text=f"{rest}Not modelled: {also}{NOT_MODELLED}.")
    checks = {run.base.name: run.base.checks for run in whole.comparisons}
    for recording in dict.fromkeys(recordings):
        doubts = [check.check for check in checks[recording.name] if check.level != USABLE]
        words = f" pagealloc info doubts its {', '.join(doubts)}." if doubts else ""
        yield Words(text=f"{_recorded_words(recording)}{words}", bullet=True)


def posted_figures_of(fields: Iterable[str]) -> pd.DataFrame | None:
    """What is quoted of the report on the proposal that one of these policy fields stands for."""
    changed = set(fields)
    study, quantities = next((CLAIMS[name] for name in CLAIMS if name in changed), ("", {}))
    try:
        posted = posted_figures(study)
    except UsageError:  # none, or a copy without the posted figures
        return None
    return posted[posted["quantity"].isin(quantities)]


def posted_claim(fields: Iterable[str]) -> str:
    """That report in a sentence, or ""."""
    posted = posted_figures_of(fields)
    if posted is None:
        return ""
    claims = []
    for quantity, rows in posted.set_index("variant").groupby("quantity", sort=False):
        sides = rows.reindex(["unpatched", "patched"]).dropna(subset=["value"])
        values = [
            _as_posted(value) if low == high else f"{low:g} to {high:g}"
            for value, low, high in zip(sides["value"], sides["low"], sides["high"], strict=True)
        ]
        unit = str(rows["unit"].iloc[0])
        name = str(quantity).removesuffix(", change")
        is_said = unit in name.lower().split() or any(value.endswith(unit) for value in values)
        claims.append(f"{name}: {' -> '.join(values)}{'' if is_said else f' {unit}'}")
    source = posted.iloc[0]
    machine = str(source["machine"]).removeprefix("not named").removeprefix("; ")
    return (
        f'"{source["subject"]}" ({source["date"]}, {source["address"]}) reports'
        f"{f' ({machine})' if machine else ''}: {'; '.join(claims)}."
    )


def _as_posted(value: str) -> str:
    """A posted number, with commas and without digits that say nothing; other words as they are."""
    return f"{float(value):,.0f}" if re.fullmatch(r"\d{3,}(\.\d+)?", value) else value


def _claim_here(whole: RepeatedComparison) -> str:
    """What the model predicts here of the quantities that the claim is about."""
    changed = set(whole.comparisons[0].changed_fields)
    _, quantities = next(CLAIMS[name] for name in CLAIMS if name in changed)
    rows = {_key(row): row for row in whole.rows.itertuples()}
    reasons = verdicts.REASONS | _LEFT_OUT
    said = []
    for key in quantities.values():
        row = rows.get(key) if key else None
        if row is None or row.verdict == verdicts.UNKNOWN:
            continue
        scale, unit = (100, " %") if row.unit == SHARE else (1, "")
        values = (_plain(scale * value) for value in (row.base, row.patch))
        verdict = reasons.get(row.verdict, row.verdict)
        said.append(f"{row_words(row)} {' -> '.join(values)}{unit} ({verdict})")
    if said:
        return f"Here the model predicts {'; '.join(said)}."
    return "None of these is predicted." if len(quantities) > 1 else "This is not predicted."


_KERNEL_SETTING = re.compile(r"vm\.|CONFIG_|/sys/|pcp->\w+$|[A-Z_]+$")


def _change_words(comparison: Comparison, name: str) -> str:
    """Such as "vm.min_free_kbytes goes from 45056 to 90112 kB"."""
    about = policy_settings()[name].metadata
    known = recorded_values(comparison.base)
    sides = (comparison.base, comparison.patch)
    before, after = (side.policy.given().get(name, known.get(name)) for side in sides)
    unit = "" if about["unit"] in ("", "order") else f" {about['unit']}"
    values = [_setting(value) for value in (before, after)]
    if about["unit"].startswith("1/"):
        values = [f"1/{value}" if value.isdecimal() and int(value) else value for value in values]
        unit = ""
    start = "is set to" if before is None else f"goes from {values[0]} to"
    is_own = _KERNEL_SETTING.match(about["kernel_name"]) and not name.startswith("ownership.")
    said = about["kernel_name"] if is_own else name
    return f"{said} ({about['meaning']}) {start} {values[1]}{unit}"


def _setting(value: Setting | None) -> str:
    return "as recorded" if value is None else value if isinstance(value, str) else str(int(value))


def _amount(change: str, *, sign: bool = False) -> str:
    """Such as "25.0 %", of "+25.0%"."""
    amount = change if sign else change.lstrip("+-")
    for ending, words in (("%", " %"), ("pt", " percentage points"), ("n", "")):
        if amount.endswith(ending):
            return amount.removesuffix(ending) + words
    return amount


def _measured(whole: RepeatedComparison) -> dict[tuple[str, str], float]:
    """What was measured, by metric and scope: means of runs; {} of a base not recorded."""
    runs = whole.comparisons
    if runs[0].base.asked_policy.given():
        return {}
    keys = set.intersection(*(set(run.errors.by_row) for run in runs))
    return {key: float(np.mean([run.errors.by_row[key].measured for run in runs])) for key in keys}


def _believed_table(rows: pd.DataFrame, measured: Mapping[tuple[str, str], float]) -> str:
    cells = []
    for row in rows.itertuples():
        words = row_words(row, place=", ")
        unit = f" ({row.unit})" if row.unit and row.unit not in words else ""
        values = [row.base, row.patch]
        if measured:
            values.insert(0, measured.get((row.metric, row.scope), float("nan")))
        sides = ("NA" if np.isnan(value) else _plain(value) for value in values)
        change, _, low, high = map(_short_measure, measures(row))
        # of the holds at one site: another site may have what it has lost
        verdict = verdicts.CHANGED if row.metric.endswith("_transactions") else row.verdict
        cells.append((words + unit, *sides, change, f"{low} to {high}", verdict))
    base = ("measured", "predicted") if measured else ("base",)
    titles = (*base, "patch", "change", "95 % interval", "")
    return Table((Column(title="", words=True), *titles), cells, grouped=False).to_text()


_FEWEST_ROUNDED = 10


def _short_measure(text: str) -> str:
    """Such as "-41%" of "-41.5%", "+4,740" of "+4740n", "+3.1 points" of "+3.1pt"."""
    found = re.fullmatch(r"([+-])([\d.]+)(%|n|pt)", text)
    if not found:
        return text
    sign, amount, unit = found.groups()
    value, unit = float(amount), {"n": "", "pt": " points"}.get(unit, unit)
    is_exact = value < _FEWEST_ROUNDED or 99 < value < 100
    return f"{sign}{amount if is_exact else f'{value:,.0f}'}{unit}"


def _plain(value: float) -> str:
    return f"{value:,.0f}" if abs(value) >= 100 else f"{value:.3g}"


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


def _results(whole: RepeatedComparison, style: Style) -> Iterator[Block]:
    rows = shown_rows(whole.rows)
    footer = whole.comparisons[0].footer()
    yield Words(text=whole.believable)
    if whole.runs == 1:
        yield Fixed(text=comparison_table(rows, footer, style=style))
    else:
        shown = RepeatedComparison(comparisons=whole.comparisons, rows=rows)
        yield Fixed(text=repeated_table(shown, style=style))
        yield Fixed(text=footer.to_text())
    base, patch = whole.rows["base"], whole.rows["patch"]
    is_elastic = whole.comparisons[0].base.assumptions.reclaim == "elastic"
    literal = "" if is_elastic else " A literal replay repeats the recorded reclaim."
    zero = "Zero on both sides, hence not in the table (in all or some zones)"
    for is_left_out, words, also in (
        ((base == 0) & (patch == 0), zero, ""),
        (base.isna() & patch.isna(), "Not modelled, hence NA", literal),
    ):
        names = ", ".join(dict.fromkeys(whole.rows.loc[is_left_out, "metric"]))
        if names:
            yield Words(text=f"{words}: {names}.{also}")


def _assumed(comparison: Comparison) -> Iterator[str]:
    base = comparison.base
    yield f"Rules: {base.rules_origin.removeprefix('rules ')}."
    inferred = sum(rule.standing == "inferred" for rule in base.rule_evidence)
    if inferred:
        words = f"{count_of(inferred, 'rule')} inferred, not read in that kernel's source"
        yield f"{words}: `pagealloc info` names them."
    defaults = asdict(Assumptions(reclaim="literal"))
    assumed = [
        f"{name} {value}"
        for name, value in asdict(base.assumptions).items()
        if value != defaults[name] and not isinstance(value, dict)
    ]
    words = f"{', '.join(assumed)}; all others by default" if assumed else "all by default"
    yield f"Assumptions: {words}; seed {base.seed}."
    yield from (f"Start: {line}." for line in base.start_state)


def _reproduce(
    whole: RepeatedComparison, recordings: Sequence[Recording], style: Style
) -> Iterator[Block]:
    first = whole.comparisons[0]
    names = dict.fromkeys(recording.name for recording in recordings)
    words = ["pagealloc", "post", *map(shlex.quote, names)]
    for side in SERIES:
        policy = getattr(first, side).asked_policy.given()
        settings = ",".join(f"{name}={_setting(value)}" for name, value in policy.items())
        words += [f"--{side}", settings] if settings else []
    seeds = {comparison.seeds for comparison in whole.comparisons}
    usual = {usual_seeds(recording, first.base.assumptions) for recording in recordings}
    words += [f"--seeds {max(seeds)}"] if seeds != usual else []
    words += [f"--style {style}"] if style != "signed" else []
    mode, own = first.base.assumptions.reclaim, first.base.recording
    policies = (first.base.asked_policy, first.patch.asked_policy)
    is_chosen = own is not None and choose_reclaim(own, *policies).mode == mode
    words += [] if is_chosen else [f"--reclaim {mode}"]
    yield command(" ".join(words))
    version = first.footer().version
    yield Words(text=f"with pagealloc_model {version}; --full has more.")
    plain = Assumptions(reclaim=mode)
    if first.base.assumptions != (plain if own is None else in_force(plain, own)):
        yield Fixed(text=paragraph(f"assumptions={first.base.assumptions}"))


def figure_title(comparison: Comparison) -> str:
    """One line: what differs between the sides, and on what recording."""
    return f"{comparison.footer().policy_difference}, predicted for {comparison.base.name}"


def figure_caption(
    comparison: Comparison, validation: Validation, path: str, base: str, patch: str
) -> str:
    """The caption: the comparison is on the left, the validation, of its recording, on the right.

    The recording's path and both policies are as the command was given them.
    """
    words = ["pagealloc", "post", str(path), *(["--base", base] if base else [])]
    command = shlex.join([*words, "--patch", patch, "--figure", "FILE"])
    losses = comparison.base.losses
    lost = f"{count_of(losses, 'event')} lost" if losses else "no event lost"
    return (
        f"Left: predicted effect of {comparison.footer().policy_difference} on the demand of "
        f"{comparison.base.name} (kernel {comparison.base.recording.release}), {lost}; bars are "
        "95 % intervals over windows of the recording, widened by the model's error. Right: the "
        "model under the recorded policy, held to the recording: "
        f"{score_words(validation.scores)} {NULL_MODELS}. "
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
    data = shipped_recordings_directory()
    path = data / "posted" / f"{study}.csv" if data else None
    if path is None or not path.is_file():
        known = sorted(path.stem for path in (data / "posted").glob("*.csv")) if data else []
        raise UsageError(f"no posted figures for {study!r}; there are {', '.join(known) or 'none'}")
    return pd.read_csv(path, dtype={"value": str})
