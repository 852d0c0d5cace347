"""The mode of reclaim of a replay: what a recording and a policy ask for, or the caller."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np

from pagealloc_model.base.errors import PolicyError
from pagealloc_model.policy.policy import (
    AUTO,
    DEMAND_FIELDS,
    ELASTIC_SETTINGS,
    Assumptions,
    Policy,
)
from pagealloc_model.predicted.carrier import Engine
from pagealloc_model.predicted.elastic_values import ElasticValues, elastic_values
from pagealloc_model.recording.trace import tracepoints as tp

if TYPE_CHECKING:
    from pagealloc_model.recording.recording import Recording

BY_RECLAIM = (
    *("min_free_kbytes", "watermark_scale_factor", "watermark_boost_factor"),
    "pageblock_order",
)
"""Policy fields whose effect is mostly that of other reclaim: watermarks wake and end it."""

RECLAIMED = ("pgsteal_kswapd", "pgsteal_direct", "pgsteal_khugepaged", "pgsteal_proactive")
"""Counters of /proc/vmstat that add up to all reclaimed pages (T12.4)."""

WITHOUT_BUILD = ("kcompactd_unreserves",)
"""Fields of the model's compaction that reach into what a kernel build decides."""


def literal_part(policy: Policy) -> Policy:
    """The policy without what only an elastic replay reads."""
    given = policy.given()
    if not given.keys() & set(ELASTIC_SETTINGS):
        return policy
    return Policy.from_settings(
        {name: value for name, value in given.items() if name not in ELASTIC_SETTINGS}
    )


def check_mode(policy: Policy, assumptions: Assumptions, *, is_build: bool) -> None:
    """Refuse a replay whose mode of reclaim does not have what is asked for.

    Args:
        policy: what the caller changed.
        assumptions: name the mode.
        is_build: a kernel build takes the model's place.

    Raises:
        PolicyError: a field that only an elastic replay reads, in a literal one; one that an
            elastic replay by a kernel build does not have.
    """
    lacking: tuple[str, ...] = ()
    why = (
        "a literal replay repeats the recorded reclaim and compaction; "
        "use --reclaim elastic, in Python Assumptions(reclaim='elastic')"
    )
    if assumptions.reclaim != "elastic":
        lacking = ELASTIC_SETTINGS
    elif is_build:
        lacking = WITHOUT_BUILD
        why = (
            "an elastic replay by a kernel build does not have it, as "
            "it is about reserved blocks, which are the tree's; leave it out"
        )
    for name in lacking:
        if name in policy.given():
            raise PolicyError(f"policy {name}: {why}")
    for name in DEMAND_FIELDS:
        if name in policy.given() and is_build:
            raise PolicyError(f"policy {name}: the model has it, a kernel build does not")


@dataclass(frozen=True, kw_only=True)
class ReclaimChoice:
    """The mode of reclaim that a recording and policies ask for.

    Attributes:
        mode: "literal", what the recorded kernel reclaimed is repeated; "elastic", the model
            decides what is reclaimed and compacted.
        why: a phrase.
        values: of an elastic mode: what reclaim and compaction find and cost, and where it is from;
            None where the caller gave them.
    """

    mode: str
    why: str
    values: ElasticValues | None = None

    def __str__(self) -> str:
        says = "" if self.values is None else f" {self.values}"
        return f"Reclaim is {self.mode} ({_ACTS[self.mode]}): {self.why}.{says}"

    @property
    def brief(self) -> str:
        """The same without the values: only what is imposed."""
        imposed = () if self.values is None else self.values.elastic.imposed
        own = f" As in the recorded kernel: {', '.join(imposed)}." if imposed else ""
        return f"Reclaim is {self.mode} ({_ACTS[self.mode]}): {self.why}.{own}"

    @property
    def assumptions(self) -> Assumptions:
        """Those of a replay in this mode, all else by default or read off its recording."""
        return Assumptions(reclaim=self.mode)


_ACTS = {
    "literal": "what the recorded kernel reclaimed is repeated",
    "elastic": "the model decides what is reclaimed and compacted",
}
_OWN_VALUES = (
    "Each recording shows its own values of reclaim; kswapd's pace and CPU and the order of "
    "reclaim at the start are imposed where it shows them."
)


def choose_reclaim(
    recording: Recording, *policies: Policy | Engine, asked: Assumptions | None = None
) -> ReclaimChoice:
    """Elastic where a policy acts through reclaim or the recorded kernel reclaimed, else literal.

    Pages that it reclaimed are counted by /proc/vmstat or else by events. A kernel build is
    replayed literally unless it is asked not to.

    Args:
        recording: an opened recording.
        policies: what is to be replayed.
        asked: its mode and elastic values, where given, are taken whatever the recording holds.
    """
    asked = asked or Assumptions()
    mode, why = mode_and_why(recording, policies, asked.reclaim)
    has_own = mode == "elastic" and asked.elastic is None
    values = elastic_values(recording) if has_own else None
    return ReclaimChoice(mode=mode, why=why, values=values)


def mode_and_why(
    recording: Recording, policies: Sequence[Policy | Engine], asked: str = AUTO
) -> tuple[str, str]:
    """The mode of reclaim that `choose_reclaim` takes, and why."""
    if asked != AUTO:
        return asked, "as asked for"
    if any(isinstance(policy, Engine) for policy in policies):
        return "literal", "a kernel build repeats it unless asked not to"
    if why := acts_through_reclaim(policies):
        return "elastic", why
    counts = [each.vmstat for each in recording.snapshots if each.vmstat is not None]
    if len(counts) > 1:
        first, last = counts[0], counts[-1]
        pages = sum((last.get(name) or 0) - (first.get(name) or 0) for name in RECLAIMED)
    else:
        shrinks = recording.trace.tables.get(tp.LRU_SHRINK_INACTIVE, {})
        pages = int(np.sum(shrinks.get("nr_reclaimed", 0)))
    if pages:
        return "elastic", f"the recorded kernel reclaimed {pages:,} pages"
    return "literal", "the recorded kernel reclaimed nothing"


def acts_through_reclaim(policies: Sequence[Policy | Engine]) -> str:
    """Name the fields that act through reclaim, "" where policies give none."""
    given = (each.policy if isinstance(each, Engine) else each for each in policies)
    fields = dict.fromkeys(name for policy in given for name in policy.given())
    acting = [name for name in fields if name in (*ELASTIC_SETTINGS, *BY_RECLAIM)]
    verb = "acts" if len(acting) == 1 else "act"
    return f"{', '.join(acting)} {verb} through reclaim" if acting else ""


def in_force(assumptions: Assumptions, recording: Recording) -> Assumptions:
    """Assumptions as a replay of a recording takes them: what they leave to it is read off it."""
    choice = choose_reclaim(recording, asked=assumptions)
    return under(assumptions, choice)


def under(assumptions: Assumptions, choice: ReclaimChoice) -> Assumptions:
    """Assumptions with the mode and the values that were chosen."""
    elastic = assumptions.elastic if choice.values is None else choice.values.elastic
    return replace(assumptions, reclaim=choice.mode, elastic=elastic)


def several_choices(choices: Mapping[str, ReclaimChoice]) -> str:
    """The modes of recordings side by side, by name, and why: a sentence each."""
    sentences = []
    for mode in dict.fromkeys(choice.mode for choice in choices.values()):
        names = [name for name, choice in choices.items() if choice.mode == mode]
        whys = {choices[name].why for name in names}
        why = whys.pop() if len(whys) == 1 else "the recorded kernels reclaimed"
        where = f" for {', '.join(names)}" if len(choices) > 1 else ""
        own = f" {_OWN_VALUES}" if mode == "elastic" else ""
        sentences.append(f"Reclaim is {mode} ({_ACTS[mode]}){where}: {why}.{own}")
    return " ".join(sentences)
