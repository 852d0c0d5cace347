"""A made-up host that builds a kernel while bursts of huge pages come and go.

Modelled on what "mm: page_alloc: defrag_mode kswapd/kcompactd assistance" was measured with: a
kernel build with concurrent bursts of huge-page allocations, 15 times in a row, on a machine short
of memory. The post names neither the machine nor the bursts' size, nor whether faults may reclaim.

Made in five versions, each after a look at what the one before did (huge pages served, counters of
compaction and stalls), the first four before any comparison with the posted rows: bursts no longer
overlap, which had left memory free ever after; there is more kernel memory for each page of cache;
and faults may not reclaim, as the post has ten refusals to a stall. The fifth, after the
comparison, has what recordings show and the fourth lacked: requests of order 1, and pages that
outlive a build.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pandas as pd

import pagealloc_model as pm

GFP, TYPE = pm.synthetic.Gfp, pm.synthetic.Migratetype
ELASTIC = pm.Assumptions(reclaim="elastic")
COUNTED = (
    "thp_fault_alloc",
    "thp_fault_fallback",
    "compact_fail",
    "compact_success",
    "compact_migrate_scanned",
    "compact_free_scanned",
    "compact_daemon_migrate_scanned",
    "compact_daemon_free_scanned",
    "pgscan_kswapd",
    "pgsteal_kswapd",
    "pgscan_direct",
    "pgsteal_direct",
    "pgmigrate_success",
    "requests_failed",
    "compact_direct_migrate_scanned",
    "compact_direct_free_scanned",
    "allocstall",
)
SHORTEST_JOB, LONGEST_JOB = 0.5, 1.5
"""A compiler's life is spread evenly between these multiples of the mean."""
CACHE, RESIDENT, FREE, KERNEL = range(4)
STEPS = 15
"""Runs that the post's trend has."""
RUN_S = 197.47
"""Length of one of them: "Kbuild Real time", s."""


@dataclass(frozen=True, kw_only=True)
class BuildHost:
    """Size and load of a host. Sources: P the post, R the recording `kbuild`, A assumed.

    A step stands for one of the post's runs: the same rates, but only 1/`scale` of its length and
    hence of its requests. What builds up over a whole run builds up over `scale` steps.

    Attributes:
        gib: memory, GiB; A: the post says "memory-constrained" only.
        nr_cpus: CPUs; A: P's 1,310 s of CPU time in 197 s are 6.6 busy ones.
        busy_cpus: compilers at a time, each on its own CPU; P, as above, rounded up.
        scale: length of the post's run over that of a step; ours, for time.
        job_stretch: compilers live this much longer and touch memory this much slower, which leaves
            memory in use as it is and divides its turnover; ours, for time.
        steps: runs in a row without a reboot; P.
        job_s: life of a compiler, s; R: 0.73 s from allocation to free on average, half a life.
        job_pages_per_s: anonymous pages that one touches, pages/s; R: 36,421 on two CPUs.
        job_kernel_pages_per_s: page tables and other kernel memory of one, pages/s, R.
        kernel_order_1_per_mille: of these, requests of order 1 that may reclaim and compact
            themselves, as 10 of 414 in the recording `mixed_6.1`, a kernel with SLUB and no
            SLUB_TINY; `kbuild` has none.
        kernel_lasting_per_mille: of these, pages that outlive the build; R: of 6,624 asked for in
            the first half of 32 s, 45 were never freed. They come in full number: a step leaves as
            many as a whole run does.
        cache_pages_per_s: files read and written, pages/s; A: 2.5 GiB in a run.
        slab_per_mille: kernel memory kept for each page of cache; A: some 2 KiB of inode, dentry
            and tree node for a file of 16 KiB, as many in a kernel's source are.
        slab_s: its mean life, s, as no shrinker takes it here; A.
        huge_per_s: faults for huge pages; P: 46,727 + 21,911 in a run. The only rate
            taken from a figure that is compared: how many are asked for, not how many are served.
        burst_huge_pages: of a burst; A.
        fault_us: time between two faults of a burst, us; A: clearing 2 MiB at 10 GB/s.
        hold_s: a burst's life after its last fault, s; A.
        kernel_percent: pageblocks of kernel memory at the start, %; A.
        kernel_free_percent: free pages in those, %; A.
        resident_percent: movable blocks of anonymous memory that stays, %; A.
        free_percent: movable blocks free as a whole, %; A. The others are page cache.
        seed: of times and places.
    """

    gib: float = 8
    nr_cpus: int = 8
    busy_cpus: int = 7
    scale: int = 64
    job_stretch: int = 10
    steps: int = STEPS
    job_s: float = 1.5
    job_pages_per_s: int = 18_200
    job_kernel_pages_per_s: int = 150
    kernel_order_1_per_mille: int = 24
    kernel_lasting_per_mille: int = 7
    cache_pages_per_s: int = 3_300
    slab_per_mille: int = 120
    slab_s: float = 120.0
    huge_per_s: int = 348
    burst_huge_pages: int = 512
    fault_us: int = 200
    hold_s: float = 0.5
    kernel_percent: int = 8
    kernel_free_percent: int = 10
    resident_percent: int = 25
    free_percent: int = 5
    seed: int = 0

    def __post_init__(self) -> None:
        """Refuse what is no host."""
        if not 1 <= self.busy_cpus <= self.nr_cpus:
            raise pm.UsageError(f"busy_cpus={self.busy_cpus}: write 1 to nr_cpus, {self.nr_cpus}")
        for name in ("scale", "steps", "job_stretch", "burst_huge_pages", "huge_per_s", "fault_us"):
            if getattr(self, name) < 1:
                raise pm.UsageError(f"{name}={getattr(self, name)}: write 1 or more")
        shares = ("kernel_percent", "kernel_free_percent", "resident_percent", "free_percent")
        for name in shares:
            if not 0 <= getattr(self, name) <= 100:
                raise pm.UsageError(f"{name}={getattr(self, name)}: write 0 to 100")

    @property
    def step_ns(self) -> int:
        """Length of a step, ns."""
        return int(RUN_S * 1e9 / self.scale)

    @property
    def lasting_pages(self) -> int:
        """Pages of kernel memory that a step leaves behind, as many as a whole run."""
        pages = self.job_kernel_pages_per_s * self.busy_cpus * RUN_S
        return round(pages * self.kernel_lasting_per_mille / 1000)

    @property
    def bursts(self) -> int:
        """Bursts in a step: whole ones, as many as come nearest to `huge_per_s`."""
        pages = self.huge_per_s * self.step_ns / 1e9
        return max(round(pages / self.burst_huge_pages), 1)


def run_build_host(
    host: BuildHost,
    policy: pm.Policy | None = None,
    *,
    rules: pm.KernelRules,
    assumptions: pm.Assumptions = ELASTIC,
) -> pd.DataFrame:
    """Results of a host's reclaim, compaction and huge pages, step by step.

    Returns:
        One row a step: step, 1 to `host.steps`; the counters of `COUNTED` within that step; at its
        end free_pages, free_blocks, whole free pageblocks, and mixed_blocks, pageblocks with both
        pages that can and that cannot be moved.
    """
    machine = pm.synthetic.synthetic_machine(host.gib, host.nr_cpus, rules)
    run = pm.synthetic.run(
        requests_of(machine, host).demand("build", seed=host.seed, start_ns=0),
        policy,
        rules=rules,
        assumptions=assumptions,
        memory=memory_after_boot(machine, host),
        at_ns=[step * host.step_ns for step in range(1, host.steps + 1)],
        look=lambda state: int(pm.synthetic.block_use(state).mixed.sum()),
        keep_holds=False,
    )
    within = run.counts.diff().fillna(run.counts).astype(np.int64)
    table = within[list(COUNTED)].join(run.free[["free_pages", "free_blocks"]])
    table["mixed_blocks"] = run.seen
    table.insert(0, "step", np.arange(1, host.steps + 1))
    return table.reset_index(drop=True)


def memory_after_boot(machine: pm.synthetic.Machine, host: BuildHost) -> pm.synthetic.Memory:
    """Whole pageblocks of kernel memory, resident programs, page cache and free memory.

    The page cache was read block by block: neighbours in memory are neighbours on the LRU list.
    """
    rng = np.random.default_rng(host.seed)
    managed = pm.synthetic.managed_pages(machine)
    block_pages = 1 << machine.pageblock_order
    kernel = host.kernel_percent / 100
    resident = (1 - kernel) * host.resident_percent / 100
    free = (1 - kernel) * host.free_percent / 100
    shares = [1 - kernel - resident - free, resident, free, kernel]
    use = rng.choice(4, len(managed) // block_pages, p=shares).astype(np.int8)
    of_page = np.repeat(use, block_pages)
    unused = rng.random(len(managed)) < host.kernel_free_percent / 100
    movable = managed & ((of_page == CACHE) | (of_page == RESIDENT))
    listed = _block_by_block(rng, np.flatnonzero(movable), machine.pageblock_order)
    return pm.synthetic.Memory(
        block_types=np.where(use == KERNEL, TYPE.UNMOVABLE, TYPE.MOVABLE).astype(np.int8),
        free=managed & ((of_page == FREE) | (of_page == KERNEL) & unused),
        movable=movable,
        listed=listed,
        is_file=of_page[listed] == CACHE,
    )


def _block_by_block(rng: np.random.Generator, pfns: np.ndarray, order: int) -> np.ndarray:
    """Pages of a block side by side and ascending, blocks in random order."""
    blocks = pfns >> order
    places = rng.permutation(int(blocks.max(initial=0)) + 1)
    return pfns[np.argsort(places[blocks], kind="stable")]


def requests_of(machine: pm.synthetic.Machine, host: BuildHost) -> pm.synthetic.Requests:
    """Requests of compilers, the page cache and bursts of huge pages, step by step."""
    rng = np.random.default_rng(host.seed + 1)
    requests = pm.synthetic.Requests(machine)
    job_ends = np.zeros(host.busy_cpus, np.int64)
    for step in range(host.steps):
        begin = step * host.step_ns
        for cpu in range(host.busy_cpus):
            while job_ends[cpu] < begin + host.step_ns:
                job_ends[cpu] = _add_job(requests, rng, host, cpu, int(job_ends[cpu]))
        _add_cache(requests, rng, host, begin)
        _add_lasting(requests, rng, host, begin)
        _add_bursts(requests, rng, host, begin, machine.pageblock_order)
    return requests


def _add_job(
    requests: pm.synthetic.Requests, rng: np.random.Generator, host: BuildHost, cpu: int, begin: int
) -> int:
    """A compiler: touches memory evenly, exits and frees all of it; returns when, ns."""
    share = rng.uniform(SHORTEST_JOB, LONGEST_JOB)
    if begin == 0:
        share *= rng.random()
    life_s = share * host.job_s * host.job_stretch
    end = begin + int(life_s * 1e9) + 1
    for rate, gfp, migratetype in (
        (host.job_pages_per_s, GFP.ANON, TYPE.MOVABLE),
        (host.job_kernel_pages_per_s, GFP.KERNEL, TYPE.UNMOVABLE),
    ):
        times = np.sort(rng.integers(begin, end, rng.poisson(rate * share * host.job_s)))
        order: int | np.ndarray = 0
        if migratetype == TYPE.UNMOVABLE:
            order = (rng.random(len(times)) < host.kernel_order_1_per_mille / 1000).astype(np.int8)
        requests.ask(
            times, np.full(len(times), end), gfp=gfp, cpu=cpu, migratetype=migratetype, order=order
        )
    return end


def _add_lasting(
    requests: pm.synthetic.Requests, rng: np.random.Generator, host: BuildHost, begin: int
) -> None:
    """Kernel memory that outlives the build: pages of slabs with a few live objects, and others."""
    times = np.sort(rng.integers(begin, begin + host.step_ns, host.lasting_pages))
    cpus = rng.integers(0, host.busy_cpus, len(times))
    requests.ask(times, None, gfp=GFP.KERNEL, cpu=cpus, migratetype=TYPE.UNMOVABLE)


def _add_cache(
    requests: pm.synthetic.Requests, rng: np.random.Generator, host: BuildHost, begin: int
) -> None:
    """Files read and written, and the kernel memory that describes them."""
    end = begin + host.step_ns
    pages = rng.poisson(host.cache_pages_per_s * host.step_ns / 1e9)
    times = np.sort(rng.integers(begin, end, pages))
    requests.ask(times, None, gfp=GFP.FILE, cpu=rng.integers(0, host.busy_cpus, pages))
    slabs = rng.poisson(pages * host.slab_per_mille / 1000)
    times = np.sort(rng.integers(begin, end, slabs))
    lives = (rng.exponential(host.slab_s, slabs) * 1e9).astype(np.int64) + 1
    requests.ask(
        times,
        times + lives,
        gfp=GFP.SLAB,
        cpu=rng.integers(0, host.busy_cpus, slabs),
        migratetype=TYPE.RECLAIMABLE,
    )


def _add_bursts(
    requests: pm.synthetic.Requests,
    rng: np.random.Generator,
    host: BuildHost,
    begin: int,
    order: int,
) -> None:
    """Bursts of faults on the last CPU, one after the other, after pauses of random length.

    A huge page is tried; base pages come in its place if it fails (S10.5).
    """
    period = host.step_ns // host.bursts
    fault_ns = host.fault_us * 1000
    faults = np.arange(host.burst_huge_pages) * fault_ns
    life = int(faults[-1] + fault_ns + host.hold_s * 1e9)
    base_pages = 1 << order
    later = 1 + np.arange(base_pages) * fault_ns // (2 * base_pages)
    cpu = host.nr_cpus - 1
    for burst in range(host.bursts):
        times = begin + burst * period + int(rng.integers(max(period - life, 1))) + faults
        gone = times[0] + life
        huge = requests.ask(
            times,
            np.full(len(times), gone),
            gfp=GFP.HUGE,
            cpu=cpu,
            order=order,
            operation=pm.synthetic.Operation.TRY,
        )
        requests.ask(
            (times[:, None] + later).ravel(),
            np.full(len(times) * base_pages, gone),
            gfp=GFP.ANON,
            cpu=cpu,
            leads=np.repeat(huge, base_pages),
        )
