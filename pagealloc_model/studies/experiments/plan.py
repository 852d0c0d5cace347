"""The plan of an experiment: kernels, settings, repeats and a workload, as a TOML file."""

from __future__ import annotations

import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from pagealloc_model.base.errors import PageallocError, PolicyError, UsageError
from pagealloc_model.policy.kernel_rules import KernelRules
from pagealloc_model.policy.policy import Policy, policy_settings
from pagealloc_model.recording.make.options import parse_size
from pagealloc_model.studies.experiments.settings import Place
from pagealloc_model.studies.experiments.workloads import Workload, workload

PLANS = Path(__file__).parent / "plans"
DESIGNS = ("one_at_a_time", "grid")
_SIZES = {"K": 1 << 10, "M": 1 << 20, "G": 1 << 30}


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
class Limits:
    """How much of the disk an experiment may take, in bytes.

    Attributes:
        run: of one run; a guest that writes more is ended.
        free: what stays free; no run is begun with less.
    """

    run: int = 2 << 30
    free: int = 2 << 30


@dataclass(frozen=True, kw_only=True)
class Plan:
    """What an experiment is to do.

    Attributes:
        name: of the experiment.
        kernels: at least one, unless all sides were measured before.
        vary: the settings that differ.
        design: "one_at_a_time": each setting from the first values; "grid": all combinations.
        settings: values by name that all runs share.
        repeats: runs of each side.
        workload: what is recorded.
        seed: of the workload.
        amount: of its work, in percent of the usual.
        guest: the machine.
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
    limits: Limits = field(default_factory=Limits)
    interval_s: float = 1.0
    buffer: int = 4 << 20
    locks: bool = False


def read_plan(path: str | Path) -> Plan:
    """The plan that a TOML file is; paths in it are relative to the file.

    Raises:
        PlanError: the file cannot be read, or a key of it is unknown, missing or has a value that
            cannot be used.
    """
    file = Path(path)
    try:
        table = tomllib.loads(file.read_text(encoding="utf-8"))
    except OSError as error:
        raise PlanError(file, "", f"cannot be read ({error.strerror}); name a TOML file") from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise PlanError(file, "", f"is no TOML: {error}") from None
    return _Reader(file).plan(table)


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
        UsageError: less than one repeat.
    """
    if repeats is not None and repeats < 1:
        raise UsageError(f"--repeats {repeats}: give at least one")
    files = [Path(image).absolute() for image in images]
    kernels = tuple(Kernel(name=file.name, image=file) for file in files)
    return replace(plan, kernels=kernels or plan.kernels, repeats=repeats or plan.repeats)


class _Reader:
    """Takes a plan's tables apart; every complaint names the key."""

    def __init__(self, file: Path) -> None:
        self._file = file

    def _refuse(self, where: str, what: str) -> PlanError:
        return PlanError(self._file, where, what)

    def _known(self, table: Mapping[str, Any], where: str, *names: str) -> None:
        for name in table:
            if name not in names:
                place = f"{where}.{name}" if where else name
                raise self._refuse(place, f"no such key; there are {', '.join(names)}")

    def plan(self, table: Mapping[str, Any]) -> Plan:
        self._known(
            table,
            "",
            *("name", "kernel", "vary", "design", "settings", "repeats", "workload", "guest"),
            *("limits", "record"),
        )
        design = table.get("design", DESIGNS[0])
        if design not in DESIGNS:
            raise self._refuse("design", f"{design!r} is none; write one of {', '.join(DESIGNS)}")
        kernels = tuple(
            self._kernel(each, f"kernel[{place}]")
            for place, each in enumerate(self._tables(table, "kernel"))
        )
        vary = tuple(
            self._vary(each, f"vary[{place}]")
            for place, each in enumerate(self._tables(table, "vary"))
        )
        if not vary and len(kernels) < 2:
            raise self._refuse("vary", "nothing differs; add a [[vary]] table, or a second kernel")
        settings = self._table(table, "settings")
        for name in settings:
            self._place(name, f"settings.{name}")
        for name, many in (
            ("kernel", [each.name for each in kernels]),
            ("vary", [each.setting for each in vary] + list(settings)),
        ):
            twice = [each for each in many if many.count(each) > 1]
            if twice:
                raise self._refuse(name, f"{twice[0]} is given twice; keep one")
        record = self._table(table, "record")
        self._known(record, "record", "interval_s", "buffer", "locks")
        return Plan(
            name=str(table.get("name", self._file.stem)),
            kernels=kernels,
            vary=vary,
            design=design,
            settings={name: _text(value) for name, value in settings.items()},
            repeats=self._count(table, "repeats", 3),
            guest=self._guest(self._table(table, "guest")),
            limits=self._limits(self._table(table, "limits")),
            interval_s=self._seconds(record, "interval_s", "record.interval_s", 1.0),
            buffer=self._buffer(record),
            locks=self._switch(record, "locks", "record.locks"),
            **self._workload(self._table(table, "workload")),
        )

    def _table(self, table: Mapping[str, Any], name: str) -> Mapping[str, Any]:
        value = table.get(name, {})
        if not isinstance(value, dict):
            raise self._refuse(name, f"is no table; write it as [{name}]")
        return value

    def _tables(self, table: Mapping[str, Any], name: str) -> list[Mapping[str, Any]]:
        value = table.get(name, [])
        if not isinstance(value, list) or not all(isinstance(each, dict) for each in value):
            raise self._refuse(name, f"is no list of tables; write each as [[{name}]]")
        return value

    def _count(self, table: Mapping[str, Any], name: str, usual: int, where: str = "") -> int:
        value = table.get(name, usual)
        if not isinstance(value, int) or isinstance(value, bool) or value < 1:
            raise self._refuse(where or name, f"{value!r} is no number of 1 or more")
        return value

    def _seconds(self, table: Mapping[str, Any], name: str, where: str, usual: float) -> float:
        value = table.get(name, usual)
        if not isinstance(value, int | float) or isinstance(value, bool) or value <= 0:
            raise self._refuse(where, f"{value!r} is no number of seconds above 0")
        return float(value)

    def _switch(self, table: Mapping[str, Any], name: str, where: str) -> bool:
        value = table.get(name, False)
        if not isinstance(value, bool):
            raise self._refuse(where, f"{value!r} is neither true nor false")
        return value

    def _words(self, table: Mapping[str, Any], name: str, where: str) -> tuple[str, ...]:
        value = table.get(name, [])
        if not isinstance(value, list):
            raise self._refuse(where, f'{value!r} is no list; write ["..."]')
        return tuple(_text(each) for each in value)

    def _size(self, table: Mapping[str, Any], name: str, where: str, usual: int) -> int:
        value = table.get(name, usual)
        if isinstance(value, int) and not isinstance(value, bool) and value >= 0:
            return value
        text = str(value).upper()
        if text[:-1].isdecimal() and text[-1] in _SIZES:
            return int(text[:-1]) * _SIZES[text[-1]]
        raise self._refuse(where, f'{value!r} is no size; write one such as "2G"')

    def _buffer(self, record: Mapping[str, Any]) -> int:
        try:
            return parse_size(str(record.get("buffer", "4M")))
        except UsageError as error:
            raise self._refuse("record.buffer", str(error).removeprefix("--buffer ")) from None

    def _place(self, name: object, where: str) -> Place:
        try:
            return Place.named(str(name))
        except UsageError as error:
            raise self._refuse(where, str(error)) from None

    def _rules(self, text: str, where: str) -> str:
        try:
            return text and KernelRules.named(text).spelled()
        except PolicyError as error:
            raise self._refuse(where, str(error)) from None

    def _kernel(self, table: Mapping[str, Any], where: str) -> Kernel:
        self._known(table, where, "image", "name", "rules")
        if not table.get("image"):
            raise self._refuse(f"{where}.image", "is missing; name a bzImage")
        image = (self._file.parent / str(table["image"])).absolute()
        return Kernel(
            name=str(table.get("name", image.name)),
            image=image,
            rules=self._rules(str(table.get("rules", "")), f"{where}.rules"),
        )

    def _vary(self, table: Mapping[str, Any], where: str) -> Vary:
        self._known(table, where, "setting", "values", "policy", "rules")
        if not table.get("setting"):
            raise self._refuse(
                f"{where}.setting", "is missing; name a sysctl, a path below /sys, or boot:NAME"
            )
        place = self._place(table["setting"], f"{where}.setting")
        values = self._words(table, "values", f"{where}.values")
        if len(set(values)) < 2 or len(set(values)) < len(values):
            raise self._refuse(f"{where}.values", "give two or more different values")
        name = str(table.get("policy", place.field))
        if name and name not in policy_settings():
            known = ", ".join(policy_settings())
            raise self._refuse(f"{where}.policy", f"no field {name!r}; there are {known}")
        rules = self._words(table, "rules", f"{where}.rules")
        if rules and len(rules) != len(values):
            raise self._refuse(f"{where}.rules", f"give {len(values)}, one for each value")
        found = Vary(
            setting=str(table["setting"]),
            values=values,
            field=name,
            rules=tuple(self._rules(each, f"{where}.rules") for each in rules),
        )
        for value in values:
            try:
                found.policy(value)
            except PolicyError as error:
                hint = 'write policy = "" if no field stands for this setting'
                raise self._refuse(f"{where}.values", f"{error}; {hint}") from None
        return found

    def _guest(self, table: Mapping[str, Any]) -> Guest:
        names = ("cpus", "memory", "nodes", "boot", "kvm", "parallel", "timeout_s", "disk")
        self._known(table, "guest", *names)
        kvm = table.get("kvm", "auto")
        if kvm not in ("auto", "yes", "no"):
            raise self._refuse("guest.kvm", f'{kvm!r} is none; write "auto", "yes" or "no"')
        if not self._size(table, "memory", "guest.memory", 512 << 20):
            raise self._refuse("guest.memory", "a guest needs memory")
        return Guest(
            cpus=self._count(table, "cpus", 2, "guest.cpus"),
            memory=str(table.get("memory", "512M")),
            nodes=self._words(table, "nodes", "guest.nodes"),
            boot=self._words(table, "boot", "guest.boot"),
            kvm=kvm,
            parallel=self._count(table, "parallel", 1, "guest.parallel"),
            timeout_s=self._seconds(table, "timeout_s", "guest.timeout_s", 900.0),
            disk=self._size(table, "disk", "guest.disk", 4 << 30),
        )

    def _limits(self, table: Mapping[str, Any]) -> Limits:
        self._known(table, "limits", "run", "free")
        return Limits(
            run=self._size(table, "run", "limits.run", Limits.run),
            free=self._size(table, "free", "limits.free", Limits.free),
        )

    def _workload(self, table: Mapping[str, Any]) -> dict[str, Any]:
        self._known(table, "workload", "name", "command", "prepare", "seed", "amount")
        name, command = table.get("name"), table.get("command")
        if (name is None) == (command is None):
            raise self._refuse("workload", "give either name, of a shipped one, or command")
        if name is not None:
            if "prepare" in table:
                raise self._refuse("workload.prepare", "goes with command, not with name")
            try:
                found = workload(str(name))
            except UsageError as error:
                raise self._refuse("workload.name", str(error)) from None
        else:
            words = str(command)
            prepare = str(table.get("prepare", ""))
            found = Workload(name=words, meaning="own", command=words, prepare=prepare)
        return {
            "workload": found,
            "seed": self._count(table, "seed", 1, "workload.seed"),
            "amount": self._count(table, "amount", 100, "workload.amount"),
        }


def _text(value: object) -> str:
    """A value as it is written into a file of the kernel's."""
    return str(int(value)) if isinstance(value, bool) else str(value)
