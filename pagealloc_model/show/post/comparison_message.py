"""A comparison as a complete message: what, on what, results, caveats, how to reproduce."""

from __future__ import annotations

import shlex
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING

import numpy as np
import pandas as pd

from pagealloc_model.base.errors import UsageError
from pagealloc_model.base.text.charts import ASCII, UTF8, Glyphs, bar_chart, histogram, time_series
from pagealloc_model.base.text.comparison_table import Style, comparison_table
from pagealloc_model.base.text.counts import count_of
from pagealloc_model.base.text.error_table import error_table
from pagealloc_model.base.text.layout import paragraph
from pagealloc_model.base.version import __version__
from pagealloc_model.policy.policy import Assumptions, policy_settings
from pagealloc_model.recording.recording import shipped_recordings_directory
from pagealloc_model.show.figures.predictions_judged import in_band_words, predicted_over_measured
from pagealloc_model.show.post.message import Block, Fixed, Message, Section, Words, command
from pagealloc_model.show.post.tables import repeated_table
from pagealloc_model.verdict.comparison import RepeatedComparison, recorded_values, repeated
from pagealloc_model.verdict.errors import verdict_words

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

LOCK_LEFT_OUT = (
    "trylocks of per-CPU lists that fail (S4.10); waiting for zone->lock does not change what is "
    "asked for and freed"
)
PAGES_LEFT_OUT = (
    "reclaim and compaction under another policy: they free what they freed in the recording; "
    "pages that change hands without an event (T9)"
)


@dataclass(frozen=True, kw_only=True)
class Chart:
    """A chart and its caveat.

    Attributes:
        text: at most 72 columns.
        left_out: what is not modelled in what it shows.
    """

    text: str
    left_out: str


def predicted_charts(comparison: Comparison, *, glyphs: Glyphs = ASCII) -> list[Chart]:
    """zone->lock by site, sizes of refills and drains, and the quantity that changes most.

    Args:
        comparison: base and patch.
        glyphs: characters to draw with.
    """
    replays = (comparison.base, comparison.patch)
    charts = [Chart(text=_by_site(comparison.rows, glyphs), left_out=LOCK_LEFT_OUT)]
    for site in ("refill", "drain"):
        counts = _sizes(replays, site)
        if counts:
            title = f"{site}s by number of pages moved under one zone->lock hold"
            drawn = histogram(title, counts, SERIES, glyphs=glyphs)
            charts.append(Chart(text=drawn, left_out=LOCK_LEFT_OUT))
    over_time = _most_changed(replays)
    if over_time is not None:
        title, seconds, series = over_time
        drawn = time_series(title, seconds, series, glyphs=glyphs)
        charts.append(Chart(text=drawn, left_out=PAGES_LEFT_OUT))
    return charts


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


def _most_changed(replays: tuple[Replay, Replay]) -> OverTime | None:
    """Of the quantities over time, the one whose curves lie farthest apart; None if none differ."""
    best, farthest = None, 0.0
    for title, base, patch in _quantities(*replays):
        scale = float(np.abs(base.to_numpy()).mean() + np.abs(patch.to_numpy()).mean())
        apart = float(np.abs(patch.to_numpy() - base.to_numpy()).mean()) / (scale or 1.0)
        if apart > farthest:
            seconds = (base.index.to_numpy() - base.index[0]) / 1e9
            series = {"base": base.to_numpy(), "patch": patch.to_numpy()}
            best, farthest = (title, seconds, series), apart
    return best


def _quantities(base: Replay, patch: Replay) -> list[tuple[str, pd.Series, pd.Series]]:
    order = base.machine.pageblock_order
    makers = {
        "pages on per-CPU lists (pcp->count), all zones": lambda each: _sum(each.pcp, "count"),
        "free pages in buddies of whole pageblocks, all zones": lambda each: _sum(
            each.free_pages[each.free_pages["order"] >= order], "pages"
        ),
        "free pages on movable lists, all zones": lambda each: _sum(
            each.free_pages[each.free_pages["migratetype"] == "Movable"], "pages"
        ),
        "HighAtomic pageblocks, all zones": lambda each: _sum(
            each.pageblocks[each.pageblocks["migratetype"] == "HighAtomic"], "blocks"
        ),
    }
    return [(title, make(base), make(patch)) for title, make in makers.items()]


def _sum(table: pd.DataFrame, value: str) -> pd.Series:
    return table.groupby("time_ns")[value].sum().astype(float)


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
) -> Message:
    """Everything a reader needs to judge and repeat a comparison.

    Args:
        comparisons: one per run, all of the same two policies.
        recordings: the recordings of the runs.
        validations: of those recordings, for a table of the model's own errors.
        style: of the table.
        utf8: draw charts with block characters instead of ASCII.
        reclaim: sentences on the mode of reclaim and why it was taken.

    Raises:
        UsageError: no comparison, or comparisons of different policies.
    """
    runs = [comparisons] if not isinstance(comparisons, Sequence) else list(comparisons)
    recordings = [recordings] if not isinstance(recordings, Sequence) else list(recordings)
    whole = repeated(runs)
    first = runs[0]
    sections = [
        Section(title="What", blocks=tuple(_what(first, reclaim))),
        Section(title="On what", blocks=tuple(_on_what(recordings))),
        Section(title="Results", blocks=tuple(_results(whole, style))),
        Section(title="Charts", blocks=tuple(_charts(first, utf8))),
        Section(title="How far to believe it", blocks=tuple(_errors(validations))),
        Section(title="Assumed", blocks=tuple(_assumed(first))),
        Section(title="Reproduce", blocks=tuple(_reproduce(whole, recordings, style))),
    ]
    return Message(
        subject=_subject(first, recordings),
        sections=tuple(section for section in sections if section.blocks),
        utf8=utf8,
    )


def shown_rows(rows: pd.DataFrame) -> pd.DataFrame:
    """The rows of a comparison that a post prints: known, and not zero on both sides."""
    known = rows["base"].notna() | rows["patch"].notna()
    return rows[known & ((rows["base"] != 0) | (rows["patch"] != 0))].reset_index(drop=True)


def _subject(comparison: Comparison, recordings: Sequence[Recording]) -> str:
    names = ", ".join(dict.fromkeys(recording.name for recording in recordings))
    return f"[predicted] {comparison.patch.asked_policy} on {names}"


def _what(comparison: Comparison, reclaim: Iterable[str]) -> Iterator[Block]:
    yield Words(text=PREDICTED)
    for sentence in reclaim:
        yield Words(text=sentence)
    sides = (comparison.base.policy.given(), comparison.patch.policy.given())
    recorded = recorded_values(comparison.base)
    for name, each in policy_settings().items():
        if sides[0].get(name) == sides[1].get(name):
            continue
        about = each.metadata
        unit = f" {about['unit']}" if about["unit"] else ""
        change = " -> ".join(_setting(side.get(name), recorded.get(name)) for side in sides) + unit
        text = f"{name} ({about['kernel_name']}): {change}; {about['meaning']} ({about['source']})"
        yield Words(text=text, bullet=True)


def _setting(value: Setting | None, recorded: Setting | None = None) -> str:
    if value is None:
        return "as recorded" + ("" if recorded is None else f" ({_setting(recorded)})")
    return value if isinstance(value, str) else str(int(value))


def _on_what(recordings: Sequence[Recording]) -> Iterator[Block]:
    for recording in {recording.name: recording for recording in recordings}.values():
        trace = recording.trace
        first, last = trace.span_ns
        yield Words(
            text=f"{recording.name}: kernel {recording.release or 'unknown'}, "
            f"{count_of(trace.nr_cpus, 'CPU')}, {(last - first) / 1e9:.1f} s, "
            f"{count_of(len(trace), 'page-allocator event')}, {trace.losses.total:,} lost, "
            f"{count_of(len(recording.snapshots), 'snapshot')}; "
            "SHA-256 of its events:",
            bullet=True,
        )
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
        yield Fixed(text=chart.text)
        yield Words(text=f"Not modelled here: {chart.left_out}.")


def _errors(validations: Sequence[Validation]) -> Iterator[Block]:
    for validation in validations:
        errors = validation.errors
        chosen = errors["metric"].isin(SHOWN_ERRORS) & ~errors["scope"].str.startswith("cpu=")
        yield Words(text=f"Under the policy that {validation.recording.name} was recorded with:")
        yield Fixed(text=error_table(errors[chosen & (errors["scope"] != "per time bin")]))


def _assumed(comparison: Comparison) -> Iterator[Block]:
    base = comparison.base
    yield Words(text=f"Rules: {base.rules_origin}.", bullet=True)
    inferred = [each.rule for each in base.rule_evidence if each.standing == "inferred"]
    if inferred:
        yield Words(
            text=f"Not read in that kernel's source, inferred: {', '.join(inferred)}.", bullet=True
        )
    assumptions = asdict(base.assumptions)
    if base.assumptions.elastic == Assumptions().elastic:
        del assumptions["elastic"]
    assumed = ", ".join(f"{name} {value}" for name, value in assumptions.items())
    yield Words(text=f"Assumptions: {assumed}; seed {base.seed}.", bullet=True)
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
    yield Words(text=f"with pagealloc_model {version} and the recordings named above.")
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
    points = predicted_over_measured(validation.errors, validation.snapshots)
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
        f"held to the recording: {in_band_words(points)}; {verdict_words(validation.errors)}. "
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
