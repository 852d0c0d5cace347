"""Behaviours of the allocator that differ between kernel versions (S13)."""

from __future__ import annotations

import re
from dataclasses import dataclass, field, fields
from typing import Any

from pagealloc_model.errors import PolicyError


def _rule(meaning: str, source: str) -> Any:
    return field(metadata={"meaning": meaning, "source": source})


@dataclass(frozen=True, kw_only=True)
class KernelRules:
    """One kernel generation's rules; every field is a row of S13.

    Attributes are documented by their `meaning` metadata. `name` is the preset's name, and
    `inferred` names the fields whose value was neither
    read in that version's source nor shown by recordings of it (S13).
    """

    name: str
    high_order_flush_adds_half_high_min: bool = _rule(
        "high-order frees flush once free_count >= batch + high_min/2, not batch", "S4.6"
    )
    free_batched: bool = _rule("the free path drains in chunks of pcp->batch", "S4.7")
    decay_batched: bool = _rule("the periodic decay drains in chunks of pcp->batch", "S4.8")
    highatomic_from_pcp: bool = _rule(
        "requests served by a per-CPU list grow the highatomic reserve", "S7.1"
    )
    highatomic_refills_pcp: bool = _rule(
        "HIGHATOMIC requests may refill a per-CPU list instead of going to the buddy", "S4.4"
    )
    skips_busy_kswapd_nodes: bool = _rule(
        "with several nodes, a first walk of the zonelist leaves out nodes whose kswapd runs",
        "S3.1",
    )
    inferred: tuple[str, ...] = ()

    @staticmethod
    def preset(name: str) -> KernelRules:
        """The preset of one kernel series.

        Raises:
            PolicyError: no such preset.
        """
        try:
            return PRESETS[name]
        except KeyError:
            raise PolicyError(f"no rules preset {name!r}; there are {', '.join(PRESETS)}") from None

    @staticmethod
    def for_release(release: str) -> tuple[KernelRules, str]:
        """The preset nearest to a kernel release, and one line on how well it fits.

        Args:
            release: as `uname -r` prints it, such as "6.18.44-generic"; "" if unknown.

        Raises:
            PolicyError: the release is older than every preset.
        """
        match = re.match(r"(\d+)\.(\d+)", release)
        if not match:
            newest = list(PRESETS)[-1]
            return PRESETS[newest], f"kernel release unknown, rules {newest} assumed"
        version = (int(match[1]), int(match[2]))
        known = {tuple(int(part) for part in name.split(".")): name for name in PRESETS}
        older = [each for each in known if each <= version]
        if not older:
            raise PolicyError(
                f"kernel {release} is older than the oldest rules preset "
                f"({next(iter(PRESETS))}); name one with rules= or --rules to go on all the same"
            )
        nearest = max(older)
        name = known[nearest]
        if nearest == version:
            return PRESETS[name], f"rules {name} from kernel release {release}"
        newest_known = max(known)
        relation = "newer than every preset" if version > newest_known else "between presets"
        return PRESETS[name], f"kernel {release} is {relation}, rules {name} assumed"

    def describe(self) -> list[tuple[str, object, str]]:
        """(field, value, "from source" or "inferred") for each rule."""
        return [
            (
                rule.name,
                getattr(self, rule.name),
                "inferred" if rule.name in self.inferred else f"preset {self.name}",
            )
            for rule in fields(self)
            if rule.name not in ("name", "inferred")
        ]


PRESETS: dict[str, KernelRules] = {
    "6.12": KernelRules(
        name="6.12",
        high_order_flush_adds_half_high_min=False,
        free_batched=False,
        decay_batched=True,
        highatomic_from_pcp=True,
        highatomic_refills_pcp=True,
        skips_busy_kswapd_nodes=False,
    ),
    "6.18": KernelRules(
        name="6.18",
        high_order_flush_adds_half_high_min=True,
        free_batched=False,
        decay_batched=True,
        highatomic_from_pcp=True,
        highatomic_refills_pcp=True,
        skips_busy_kswapd_nodes=True,
        inferred=("highatomic_from_pcp", "highatomic_refills_pcp", "skips_busy_kswapd_nodes"),
    ),
    "7.2": KernelRules(
        name="7.2",
        high_order_flush_adds_half_high_min=True,
        free_batched=True,
        decay_batched=True,
        highatomic_from_pcp=False,
        highatomic_refills_pcp=False,
        skips_busy_kswapd_nodes=True,
    ),
}


def preset_names() -> tuple[str, ...]:
    """Names of the presets, oldest first."""
    return tuple(PRESETS)
