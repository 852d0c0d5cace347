"""What can be swept: `Policy`, the kernel's choices, and `Assumptions`, ours."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import Field, dataclass, field, fields
from typing import Any

from pagealloc_model.errors import PolicyError


def _swept(
    kernel_name: str,
    meaning: str,
    *,
    source: str,
    group: str,
    unit: str = "",
    minimum: int = 0,
    maximum: int = 1,
    step: int = 1,
    default: int | bool | None = None,
    kind: str = "int",
) -> Any:
    """A Policy field; `default` is what mainline does where the recording does not say."""
    return field(
        default=None,
        metadata={
            "kernel_name": kernel_name,
            "meaning": meaning,
            "source": source,
            "group": group,
            "unit": unit,
            "minimum": minimum,
            "maximum": maximum,
            "step": step,
            "default": default,
            "kind": kind,
        },
    )


_HIGHATOMIC = "highatomic reserve"
_PCP = "per-CPU lists"
_FALLBACK = "fallback and watermarks"


@dataclass(frozen=True, kw_only=True)
class Policy:
    """What the kernel could do differently; `None` means "as recorded".

    Each field's metadata carries `kernel_name`, `unit`, `minimum`, `maximum`, `step`, `default`
    (mainline's value, None where it is computed from the machine), `meaning`, `source`, `group`
    and `kind` ("int" or "bool"); sliders, command-line help and docs are generated from it.

    Raises:
        PolicyError: a value outside its range or of the wrong kind.
    """

    highatomic_gate_order: int | None = _swept(
        "reserve_highatomic_pageblock() gate",
        "reserve no pageblock for atomic requests of this order or below",
        source='S7.2; "mm/page_alloc: skip high atomic reservation at or below costly order"',
        group=_HIGHATOMIC,
        unit="order",
        maximum=10,
        default=0,
    )
    highatomic_reserve_percent: int | None = _swept(
        "max_managed in reserve_highatomic_pageblock()",
        "cap of the highatomic reserve as a share of the zone's managed pages",
        source="S7.2",
        group=_HIGHATOMIC,
        unit="%",
        maximum=10,
        default=1,
    )
    highatomic_from_pcp: bool | None = _swept(
        "reserve after rmqueue_pcplist()",
        "requests that a per-CPU list served grow the reserve too",
        source="S7.1",
        group=_HIGHATOMIC,
        kind="bool",
    )
    costly_order: int | None = _swept(
        "PAGE_ALLOC_COSTLY_ORDER",
        "largest order that is cheap to allocate: per-CPU lists hold orders up to it",
        source="S1.9, S4.6",
        group=_PCP,
        unit="order",
        maximum=9,
        default=3,
    )
    pcp_batch: int | None = _swept(
        "pcp->batch",
        "pages moved between a per-CPU list and the buddy at the base rate",
        source="S4.2",
        group=_PCP,
        unit="pages",
        minimum=1,
        maximum=511,
    )
    pcp_high_min: int | None = _swept(
        "pcp->high_min",
        "lower bound of the tuned per-CPU list length",
        source="S4.3",
        group=_PCP,
        unit="pages",
        maximum=1 << 20,
        step=64,
    )
    pcp_high_max: int | None = _swept(
        "pcp->high_max",
        "upper bound of the tuned per-CPU list length",
        source="S4.3",
        group=_PCP,
        unit="pages",
        maximum=1 << 20,
        step=64,
    )
    percpu_pagelist_high_fraction: int | None = _swept(
        "vm.percpu_pagelist_high_fraction",
        "share 1/N of the zone that all per-CPU lists may hold; 0 tunes automatically",
        source="S4.3",
        group=_PCP,
        unit="1/N",
        maximum=1024,
        step=8,
    )
    pcp_batch_scale_max: int | None = _swept(
        "CONFIG_PCP_BATCH_SCALE_MAX",
        "refills and drains grow up to batch << this",
        source="S4.4, S4.6",
        group=_PCP,
        maximum=6,
        default=5,
    )
    pcp_free_batched: bool | None = _swept(
        "free_frozen_page_commit() chunks",
        "overflow frees go to the buddy in lock holds of pcp->batch pages each",
        source='S4.7; "mm/page_alloc: batch page freeing in free_frozen_page_commit"',
        group=_PCP,
        kind="bool",
    )
    pcp_decay_batched: bool | None = _swept(
        "decay_pcp_high() chunks",
        "so does what the periodic decay returns",
        source='S4.8; "mm/page_alloc: batch page freeing in decay_pcp_high"',
        group=_PCP,
        kind="bool",
    )
    pcp_drain_batched: bool | None = _swept(
        "drain_pages_zone() chunks",
        "full drains take pcp->batch pages a lock hold; otherwise batch << S, or all before 6.1.y",
        source='S4.9; "mm/page_alloc: perform appropriate batching in drain_pages_zone"',
        group=_PCP,
        kind="bool",
    )
    min_free_kbytes: int | None = _swept(
        "vm.min_free_kbytes",
        "memory below the min watermarks of all zones together",
        source="S1.5, S1.6",
        group=_FALLBACK,
        unit="kB",
        minimum=128,
        maximum=1 << 22,
        step=1024,
    )
    watermark_scale_factor: int | None = _swept(
        "vm.watermark_scale_factor",
        "distance between watermarks in units of managed/10000",
        source="S1.6",
        group=_FALLBACK,
        minimum=1,
        maximum=3000,
        default=10,
    )
    watermark_boost_factor: int | None = _swept(
        "vm.watermark_boost_factor",
        "cap of the watermark boost after a fallback, in 1/10000 of the high watermark",
        source="S1.7",
        group=_FALLBACK,
        maximum=30000,
        step=1000,
        default=15000,
    )

    def __post_init__(self) -> None:
        """Check every value that is given against its field's range."""
        for each in fields(self):
            _check(each, getattr(self, each.name))
        fraction = self.percpu_pagelist_high_fraction
        if fraction is not None and 0 < fraction < 8:
            raise PolicyError(
                f"policy percpu_pagelist_high_fraction={fraction}: the kernel takes 0 or 8 and more"
            )

    @classmethod
    def parse(cls, settings: Iterable[str]) -> Policy:
        """A policy from "field=value" words, as `--set` takes them; "none" means as recorded.

        Raises:
            PolicyError: a word without "=", an unknown field or a bad value.
        """
        values: dict[str, int | bool | None] = {}
        kinds = field_kinds()
        for setting in settings:
            name, equals, text = setting.partition("=")
            name = name.strip()
            if not equals:
                raise PolicyError(f"policy setting {setting!r}: write field=value")
            if name not in kinds:
                raise PolicyError(f"policy has no field {name!r}; fields: {', '.join(kinds)}")
            values[name] = _parse_value(name, text.strip(), kinds[name])
        return cls(**values)  # type: ignore[arg-type]

    def given(self) -> dict[str, int | bool]:
        """The fields that differ from "as recorded"."""
        return {
            each.name: value
            for each in fields(self)
            if (value := getattr(self, each.name)) is not None
        }

    def __str__(self) -> str:
        return " ".join(f"{name}={int(value)}" for name, value in self.given().items()) or (
            "as recorded"
        )


@dataclass(frozen=True, kw_only=True)
class Assumptions:
    """What we assume where the recording is silent; printed with every result.

    Attributes:
        reclaim: "literal": frees done by reclaim replay as recorded (S10.4).
        decay_period_ns: time between two decay ticks of a CPU (S4.8: nominally 1 s), where the
            recording does not show them.
        decay_phase_ns: when within a period CPU 0's decay tick comes, on the recording's clock. It
            depends on when the machine booted; only recorded ticks show it.
        hidden_migratetype: migratetype of allocations the recording does not show (T9); bulk
            allocations are mostly unmovable.
        start: "recorded": begin with the state that the recording's files and first touches show;
            "empty": with all managed pages free, for synthetic demand.
        free_high_batch: the CPU's data-cache slice exceeds 3 batches (FREE_HIGH_BATCH, S4.6).
        counters: what watermark tests read: "exact" counts, or counts that are "lagged" by what
            each CPU has not passed on yet (S1.10).
    """

    reclaim: str = "literal"
    decay_period_ns: int = 1_000_000_000
    decay_phase_ns: int = 0
    hidden_migratetype: int = 0
    start: str = "recorded"
    free_high_batch: bool = True
    counters: str = "exact"

    def __post_init__(self) -> None:
        """Refuse values no replay knows.

        Raises:
            PolicyError: an unknown reclaim mode, start or kind of counters, a period below a
                millisecond, a phase outside it, a bad migratetype.
        """
        if self.counters not in ("exact", "lagged"):
            raise PolicyError(
                f"assumptions: counters={self.counters!r} is not known; use 'exact' or 'lagged'"
            )
        if self.start not in ("recorded", "empty"):
            raise PolicyError(
                f"assumptions: start={self.start!r} is not known; use 'recorded' or 'empty'"
            )
        if self.reclaim != "literal":
            raise PolicyError(f"assumptions: reclaim={self.reclaim!r} is not known; use 'literal'")
        if self.decay_period_ns < 1_000_000:
            raise PolicyError("assumptions: decay_period_ns must be at least 1000000 (1 ms)")
        if not 0 <= self.decay_phase_ns < self.decay_period_ns:
            raise PolicyError("assumptions: decay_phase_ns must be within the period")
        if self.hidden_migratetype not in (0, 1, 2):
            raise PolicyError("assumptions: hidden_migratetype must be 0, 1 or 2")


def field_kinds() -> dict[str, str]:
    """Policy field -> "int" or "bool"."""
    return {each.name: each.metadata["kind"] for each in fields(Policy)}


def _parse_value(name: str, text: str, kind: str) -> int | bool | None:
    if text.lower() == "none":
        return None
    if kind == "bool":
        words = {"1": True, "0": False, "true": True, "false": False, "on": True, "off": False}
        if text.lower() not in words:
            raise PolicyError(f"policy {name}={text}: write 0 or 1")
        return words[text.lower()]
    try:
        return int(text)
    except ValueError:
        raise PolicyError(f"policy {name}={text}: write a whole number") from None


def _check(each: Field[Any], value: object) -> None:
    is_switch = each.metadata["kind"] == "bool"
    if value is None or (is_switch and isinstance(value, bool)):
        return
    low, high = each.metadata["minimum"], each.metadata["maximum"]
    if not isinstance(value, int) or isinstance(value, bool):
        raise PolicyError(f"policy {each.name}={value!r}: write a whole number")
    if not low <= value <= high:
        raise PolicyError(f"policy {each.name}={value} is outside {low} to {high}")
