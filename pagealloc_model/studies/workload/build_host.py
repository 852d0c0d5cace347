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

from pagealloc_model.base.errors import UsageError

STEPS = 15
"""Runs that the post's trend has."""
RUN_S = 197.47
"""Length of one of them: "Kbuild Real time", s."""


@dataclass(frozen=True, kw_only=True)
class BuildHost:
    """What a host is and does. Sources: P the post, R the recording `kbuild`, A assumed.

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
        """Refuse what is no host.

        Raises:
            UsageError: more compilers than CPUs, a count below 1 or a share that is none.
        """
        if not 1 <= self.busy_cpus <= self.nr_cpus:
            raise UsageError(f"busy_cpus={self.busy_cpus}: write 1 to nr_cpus, {self.nr_cpus}")
        for name in ("scale", "steps", "job_stretch", "burst_huge_pages", "huge_per_s", "fault_us"):
            if getattr(self, name) < 1:
                raise UsageError(f"{name}={getattr(self, name)}: write 1 or more")
        shares = ("kernel_percent", "kernel_free_percent", "resident_percent", "free_percent")
        for name in shares:
            if not 0 <= getattr(self, name) <= 100:
                raise UsageError(f"{name}={getattr(self, name)}: write 0 to 100")

    @property
    def step_ns(self) -> int:
        """Length of a step, ns."""
        return int(RUN_S * 1e9 / self.scale)

    @property
    def lasting_pages(self) -> int:
        """Pages of kernel memory that a step leaves behind, as many as a whole run."""
        asked = self.job_kernel_pages_per_s * self.busy_cpus * RUN_S
        return round(asked * self.kernel_lasting_per_mille / 1000)

    @property
    def bursts(self) -> int:
        """Bursts in a step: whole ones, as many as come nearest to `huge_per_s`."""
        asked = self.huge_per_s * self.step_ns / 1e9
        return max(round(asked / self.burst_huge_pages), 1)
