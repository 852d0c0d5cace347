"""The proposals of docs/proposals.md: what each changes, its posted figures, hosts and metrics."""

from __future__ import annotations

import tomllib
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path

from pagealloc_model.notebooks.studies.others.full_host import FullHost

import pagealloc_model as pm


@dataclass(frozen=True, kw_only=True)
class Side:
    """One side of a comparison.

    Attributes:
        words: settings of the policy as `--patch` takes them, "" for none.
        rules: the kernel's, as `--rules` takes them.
    """

    words: str = ""
    rules: str = "6.12"

    @property
    def policy(self) -> pm.Policy:
        """The settings as a policy."""
        return pm.Policy.parse([word for word in self.words.split(",") if word])


@dataclass(frozen=True, kw_only=True)
class Row:
    """A quantity of a made-up host.

    Attributes:
        what: its name.
        counters: columns of `run_full_host` that make it up; with " at the end" a level.
        out_of: it is a share of these; none: a count.
        posted: quantity in the posted figures, "" for none.
    """

    what: str
    counters: tuple[str, ...]
    out_of: tuple[str, ...] = ()
    posted: str = ""


@dataclass(frozen=True, kw_only=True)
class Proposal:
    """A proposal as a policy.

    Attributes:
        name: short, to choose it by.
        title: what it does.
        post: its subject, and when.
        file: where the model has it.
        posted: file of its figures in data/posted, "" for none.
        base: without it.
        patch: with it.
        host: a made-up host.
        rows: what is shown of the host; none: no host.
        recordings: names and modes of reclaim.
        recorded_words: settings with it on recordings, where the patch's do not fit them.
        metrics: of `compare`, that are shown.
    """

    name: str
    title: str
    post: str
    file: str
    patch: Side
    posted: str = ""
    base: Side = field(default_factory=Side)
    host: FullHost = field(default_factory=FullHost)
    rows: tuple[Row, ...] = ()
    recordings: tuple[tuple[str, str], ...] = ()
    recorded_words: str = ""
    metrics: tuple[str, ...] = ()


def proposals() -> Iterator[Proposal]:
    """Those of proposals.toml, where hosts, rows and groups of metrics go by their names."""
    tables = tomllib.loads(Path(__file__).with_name("proposals.toml").read_text())
    hosts = {name: FullHost(**about) for name, about in tables["hosts"].items()}
    known = {
        name: Row(**{key: tuple(own) if isinstance(own, list) else own for key, own in row.items()})
        for name, row in tables["rows"].items()
    }
    for about in tables["proposals"]:
        unposted, metrics = about.pop("unposted", ()), about.pop("metrics", [])
        rows = [(name, known[name]) for name in about.pop("rows", ())]
        yield Proposal(
            base=Side(**about.pop("base", {})),
            patch=Side(**about.pop("patch")),
            host=hosts.get(about.pop("host", ""), FullHost()),
            rows=tuple(replace(row, posted="") if name in unposted else row for name, row in rows),
            recordings=tuple(map(tuple, about.pop("recordings", ()))),
            metrics=tuple(tables["metrics"][metrics] if isinstance(metrics, str) else metrics),
            **about,
        )


PROPOSALS = tuple(proposals())
