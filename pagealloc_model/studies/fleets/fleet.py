"""`fleet`: two sets of hosts, each under its own policy."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from pathlib import Path
from typing import TYPE_CHECKING

import pandas as pd

from pagealloc_model.base.errors import UsageError
from pagealloc_model.base.progress_bar import Report, part_of
from pagealloc_model.base.progress_bar import progress as progress_bar
from pagealloc_model.policy.kernel_rules import KernelRules
from pagealloc_model.policy.policy import Policy
from pagealloc_model.recording.recording import Recording
from pagealloc_model.studies.fleets.results import FleetResult
from pagealloc_model.studies.fleets.synthetic_hosts import (
    SyntheticHosts,
    host_identity,
    host_result,
)
from pagealloc_model.studies.sweeps.fingerprint import result_key
from pagealloc_model.studies.sweeps.local import Job, default_workers, records_of
from pagealloc_model.studies.sweeps.record import PROVENANCE, Record
from pagealloc_model.studies.sweeps.result_cache import chosen_cache
from pagealloc_model.studies.sweeps.sweep import sweep

if TYPE_CHECKING:
    from distributed import Client

Hosts = SyntheticHosts | Iterable[Recording | str | Path]


def fleet(
    base: Hosts,
    patch: Hosts,
    *,
    base_policy: Policy | None = None,
    patch_policy: Policy | None = None,
    rules: KernelRules | str | None = None,
    client: Client | str | None = None,
    workers: int | None = None,
    cache: str | Path | bool = True,
    progress: Callable[[float], None] | None = None,
) -> FleetResult:
    """What two sets of hosts do, each under its policy: one row of metrics a host.

    Hosts are recordings, replayed, or made up, run from an empty machine. As in a sweep, finished
    hosts are kept, and one that fails has its error in place of numbers.

    Args:
        base: hosts of the A side.
        patch: hosts of the B side; other ones, as on a real fleet, or the same.
        base_policy: what the A side runs; None for as recorded, or the kernel's defaults.
        patch_policy: what the B side runs.
        rules: for recordings, as `replay` takes them; made-up hosts have their own.
        client: for recordings, a Dask client or its scheduler's address.
        workers: threads; None for one on each CPU.
        cache: as `sweep` takes it.
        progress: called with the share done, 0 to 1; None shows a bar where one is seen.

    Raises:
        UsageError: a side without hosts, or made-up hosts on a cluster.
        PolicyError: no such rules.
        RecordingError: a recording cannot be opened.
        ClusterError: the scheduler cannot be reached, or goes away.
    """
    given = {"base": (base, base_policy), "patch": (patch, patch_policy)}
    sides = {}
    with progress_bar("fleet", 2, "sides", progress) as report:
        for place, (side, (hosts, policy)) in enumerate(given.items()):
            part = part_of(report, place / 2, (place + 1) / 2)
            if isinstance(hosts, SyntheticHosts):
                if client is not None:
                    raise UsageError("made-up hosts are run by threads of this process alone")
                rows = _run(hosts, policy or Policy(), workers, cache, part)
            else:
                found = sweep(
                    hosts,
                    policy=policy,
                    rules=rules,
                    client=client,
                    workers=workers,
                    cache=cache,
                    progress=part or _unseen,
                )
                rows = found.rows.rename(columns={"recording": "host"})
            rows.insert(0, "side", side)
            sides[side] = rows
    return FleetResult(
        hosts=pd.concat(sides.values(), ignore_index=True),
        policies={side: policy or Policy() for side, (_, policy) in given.items()},
        synthetic=any(isinstance(hosts, SyntheticHosts) for hosts, _ in given.values()),
    )


def _run(
    made_up: SyntheticHosts,
    policy: Policy,
    workers: int | None,
    cache: str | Path | bool,
    report: Report | None,
) -> pd.DataFrame:
    """Rows of made-up hosts."""
    if made_up.count < 1:
        raise UsageError("a side of a fleet needs at least one host")
    rules = made_up.kernel_rules()
    kept = chosen_cache(cache)
    names: dict[str, str] = {}
    jobs: dict[str, Job] = {}
    records: dict[str, Record] = {}
    for name, host in made_up.hosts():
        key = result_key(host_identity(host, policy, rules))
        names[key] = name
        known = kept.load(key) if kept else None
        if known is not None:
            records[key] = known
        else:
            jobs[key] = lambda cancel, host=host: host_result(host, policy, rules, cancel)
    for record in records_of(jobs, default_workers() if workers is None else workers):
        if kept:
            kept.store(record)
        records[record.key] = record
        if report is not None:
            report(len(records) / len(names))
    return pd.DataFrame([_row(name, records[key]) for key, name in names.items()])


def _row(name: str, record: Record) -> dict[str, object]:
    told = {each: record.provenance.get(each) for each in PROVENANCE}
    return {
        "host": name,
        **record.metrics,
        **told,
        "seconds": record.seconds,
        "finished": record.finished,
        "key": record.key,
        "error": record.error,
    }


def _unseen(share: float) -> None:
    """A side's own progress where nobody looks."""
