"""The plan of an experiment: machines, settings, repeats and a workload."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from pagealloc_model.base.errors import PageallocError, UsageError
from pagealloc_model.policy.policy import Policy
from pagealloc_model.studies.experiments.workloads import Workload

PLANS = Path(__file__).parent / "plans"
DESIGNS = ("one_at_a_time", "grid")


class PlanError(PageallocError):
    """A plan cannot be used.

    Args:
        file: the plan.
        where: the key at fault, such as "vary[1].values".
        what: what is wrong, and what to write instead.
    """

    def __init__(self, file: Path, where: str, what: str) -> None:
        super().__init__(f"{file}: {where}: {what}" if where else f"{file}: {what}")


@dataclass(frozen=True, kw_only=True)
class Kernel:
    """A kernel to boot.

    Attributes:
        name: of its file, unless given.
        image: the bzImage.
        rules: under which others' recordings are replayed to predict it, as `KernelRules.named`
            takes them; "" where no pair of kernels is predicted.
    """

    name: str
    image: Path
    rules: str = ""


@dataclass(frozen=True, kw_only=True)
class Vary:
    """A setting that differs between sides.

    Attributes:
        setting: its name, see `settings.Place`.
        values: as written into the guest; the first is where the others start from.
        field: of `Policy`, which stands for it; "" if none does.
        rules: for each value, rules that stand for it; () if none do.
    """

    setting: str
    values: tuple[str, ...]
    field: str = ""
    rules: tuple[str, ...] = ()

    def policy(self, value: str) -> Policy:
        """The policy that stands for a value; an empty one if no field does."""
        return Policy.parse([f"{self.field}={value}"]) if self.field else Policy()


@dataclass(frozen=True, kw_only=True)
class Guest:
    """The machine that is booted.

    Attributes:
        cpus: their number.
        memory: as virtme-ng takes it, such as "512M".
        nodes: memory and CPUs of each NUMA node, as virtme-ng takes them; () for one node.
        boot: boot parameters of all runs.
        kvm: "auto" tries it, "no" does without, "yes" relies on it.
        parallel: guests at once.
        timeout_s: the longest that a run may take.
        disk: bytes of the scratch disk's file "big", which takes no room; 0 for no disk.
    """

    cpus: int = 2
    memory: str = "512M"
    nodes: tuple[str, ...] = ()
    boot: tuple[str, ...] = ()
    kvm: str = "auto"
    parallel: int = 1
    timeout_s: float = 900.0
    disk: int = 4 << 30


@dataclass(frozen=True, kw_only=True)
class Here:
    """The machine that the experiment is run on, where no guest is booted.

    Attributes:
        memory: bytes that are left to the workload, beside the ring buffers; the rest is held; 0
            to hold none.
        timeout_s: the longest that a run may take.
        disk: bytes of the file "big" in the run's folder, which takes no room.
    """

    memory: int = 0
    timeout_s: float = 300.0
    disk: int = 4 << 30


@dataclass(frozen=True, kw_only=True)
class Limits:
    """How much of the disk an experiment may take, in bytes.

    Attributes:
        run: of one run; one that writes more is ended.
        free: what stays free; no run is begun with less.
    """

    run: int = 2 << 30
    free: int = 2 << 30


@dataclass(frozen=True, kw_only=True)
class Plan:
    """What an experiment is to do.

    Attributes:
        name: of the experiment.
        kernels: at least one, unless all sides were measured before or run here.
        vary: the settings that differ.
        design: "one_at_a_time": each setting from the first values; "grid": all combinations.
        settings: values by name that all runs share.
        repeats: runs of each side.
        workload: what is recorded.
        seed: of the workload.
        amount: of its work, in percent of the usual.
        guest: the machine that is booted.
        here: this machine, which takes a guest's place; None to boot guests.
        limits: of the disk.
        interval_s: seconds between snapshots.
        buffer: bytes of each CPU's ring buffer.
        locks: record lock contention.
    """

    name: str
    vary: tuple[Vary, ...]
    workload: Workload
    kernels: tuple[Kernel, ...] = ()
    design: str = DESIGNS[0]
    settings: Mapping[str, str] = field(default_factory=dict)
    repeats: int = 3
    seed: int = 1
    amount: int = 100
    guest: Guest = field(default_factory=Guest)
    here: Here | None = None
    limits: Limits = field(default_factory=Limits)
    interval_s: float = 1.0
    buffer: int = 4 << 20
    locks: bool = False


def find_plan(name: str | Path) -> Path:
    """A plan's file: what the name is a path of, or a shipped plan of that name."""
    file = Path(name)
    shipped = PLANS / f"{name}.toml"
    return shipped if not file.exists() and shipped.exists() else file


def changed_plan(plan: Plan, images: Sequence[str | Path], repeats: int | None = None) -> Plan:
    """A plan with other kernels or another number of repeats.

    Args:
        plan: the plan.
        images: kernels in place of its own; none keeps them.
        repeats: of each side; None keeps the plan's.

    Raises:
        UsageError: less than one repeat, or kernels for a plan that boots none.
    """
    if images and plan.here is not None:
        raise UsageError(f"{plan.name} runs on this machine's own kernel; leave --kernel out")
    if repeats is not None and repeats < 1:
        raise UsageError(f"--repeats {repeats}: give at least one")
    files = [Path(image).absolute() for image in images]
    kernels = tuple(Kernel(name=file.name, image=file) for file in files)
    return replace(plan, kernels=kernels or plan.kernels, repeats=repeats or plan.repeats)
