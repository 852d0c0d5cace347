"""The plan of an experiment: machines, settings, repeats and a workload."""

from __future__ import annotations

import itertools
import re
import string
import tomllib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from pagealloc_model.base.errors import PageallocError, PolicyError, RecordingError, UsageError
from pagealloc_model.base.files import given, text_of
from pagealloc_model.policy.kernel_rules import KernelRules
from pagealloc_model.policy.policy import Policy, policy_settings
from pagealloc_model.recording.record.perf import parse_size
from pagealloc_model.studies.experiments.workloads import Workload, workload

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
    if repeats is not None and not 1 <= repeats <= _MOST:
        raise UsageError(f"--repeats {repeats}: give at least one and at most {_MOST}")
    files = [Path(image).absolute() for image in images]
    kernels = tuple(Kernel(name=file.name, image=file) for file in files)
    return replace(plan, kernels=kernels or plan.kernels, repeats=repeats or plan.repeats)


SYSCTL, FILE, BOOT = "sysctl", "file", "boot"
KERNEL = "kernel"
"""The axis of kernels, where a plan has several."""

_SYSFS = "/sys/"
_BOOT_PREFIX = "boot:"
_BY_PLACE = {"/sys/kernel/mm/transparent_hugepage/defrag": "thp_defrag"}
"""Fields of files in sysfs; a sysctl's field has its name."""


@dataclass(frozen=True, kw_only=True)
class Place:
    """Where a setting is made.

    Attributes:
        kind: SYSCTL, FILE or BOOT.
        name: such as "vm.min_free_kbytes", a path below /sys, or a boot parameter.
    """

    kind: str
    name: str

    @staticmethod
    def named(text: str) -> Place:
        """The place that a plan names.

        Args:
            text: "vm.NAME" or another sysctl, a path below /sys, or "boot:NAME".

        Raises:
            UsageError: none of these.
        """
        if text.startswith(_SYSFS) and ".." not in text.split("/"):
            return Place(kind=FILE, name=text)
        if text.startswith(_BOOT_PREFIX) and text != _BOOT_PREFIX:
            return Place(kind=BOOT, name=text.removeprefix(_BOOT_PREFIX))
        if "." in text.strip(".") and "/" not in text and " " not in text:
            return Place(kind=SYSCTL, name=text)
        raise UsageError(
            f"{text!r} is no setting; name a sysctl (vm.NAME), a path below /sys, or boot:NAME"
        )

    def file(self, root: Path = Path("/")) -> Path:
        """The file that is written; of a boot parameter, where it can be seen."""
        if self.kind == SYSCTL:
            return root / "proc/sys" / self.name.replace(".", "/")
        return root / ("proc/cmdline" if self.kind == BOOT else self.name.removeprefix("/"))

    @property
    def field(self) -> str:
        """The field of `Policy` that stands for it, "" if there is none."""
        if self.kind == FILE:
            return _BY_PLACE.get(self.name, "")
        name = self.name.rpartition(".")[2]
        return name if self.kind == SYSCTL and name in policy_settings() else ""


def boot_words(values: Mapping[str, str]) -> list[str]:
    """Boot parameters among settings, as "NAME=VALUE"."""
    places = ((Place.named(name), value) for name, value in values.items())
    return [f"{place.name}={value}" for place, value in places if place.kind == BOOT]


def apply(values: Mapping[str, str], root: Path = Path("/")) -> None:
    """Make settings on this machine and read each back.

    Args:
        values: by name, as a plan writes them.
        root: of the files.

    Raises:
        UsageError: this kernel has no such setting, refuses the value, or keeps another.
    """
    for name, value in values.items():
        place = Place.named(name)
        file = place.file(root)
        try:
            if place.kind != BOOT:
                file.write_text(value)
            kept = file.read_text().strip()
        except OSError as error:
            raise UsageError(
                f"{name}={value}: cannot be set in this kernel ({error.strerror})"
            ) from None
        if not _has(place, kept, value):
            raise UsageError(f"{name}={value}: this kernel keeps {kept!r}")


def found(names: Iterable[str], root: Path = Path("/")) -> dict[str, str]:
    """Values that settings have on this machine, as `apply` makes them.

    Args:
        names: as a plan writes them; no boot parameters.
        root: of the files.

    Raises:
        UsageError: this kernel has no such setting.
    """
    values = {}
    for name in names:
        try:
            text = Place.named(name).file(root).read_text().strip()
        except OSError as error:
            raise UsageError(f"{name}: cannot be read in this kernel ({error.strerror})") from None
        chosen = [word.strip("[]") for word in text.split() if word.startswith("[")]
        values[name] = chosen[0] if chosen else text
    return values


def _has(place: Place, kept: str, value: str) -> bool:
    """Whether what is read back is what was written; of several words, the one in brackets."""
    if place.kind == BOOT:
        return f"{place.name}={value}" in kept.split()
    return f"[{value}]" in kept.split() or kept.split() == value.split()


_SIZES = {"K": 1 << 10, "M": 1 << 20, "G": 1 << 30}


def read_plan(path: str | Path) -> Plan:
    """The plan that a TOML file is; paths in it are relative to the file.

    Raises:
        PlanError: the file cannot be read, or a key of it is unknown, missing or has a value that
            cannot be used.
    """
    file = Path(path)
    try:
        table = tomllib.loads(text_of(given(file), "utf-8", todo="give a plan, which is TOML"))
    except RecordingError as error:
        names = ", ".join(sorted(each.stem for each in PLANS.glob("*.toml")))
        todo = f"name a TOML file, or a shipped plan ({names})"
        raise PlanError(file, "", f"{error.what}; {todo}") from None
    except (tomllib.TOMLDecodeError, RecursionError) as error:
        raise PlanError(file, "", f"is no TOML: {error}") from None
    return _Reader(file).plan(table)


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
            *("limits", "record", "here"),
        )
        if "here" in table:
            self._allow_here(table)
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
            here=self._here(self._table(table, "here")) if "here" in table else None,
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
        if value > _MOST:
            raise self._refuse(where or name, f"is more than {_MOST}")
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
        nodes = self._words(table, "nodes", "guest.nodes")
        for node in nodes:
            if not _NODE.fullmatch(node):
                raise self._refuse(
                    "guest.nodes", f'{node!r} is none; write such as "256M,cpus=0-1"'
                )
        return Guest(
            cpus=self._count(table, "cpus", 2, "guest.cpus"),
            memory=str(table.get("memory", "512M")),
            nodes=nodes,
            boot=self._words(table, "boot", "guest.boot"),
            kvm=kvm,
            parallel=self._count(table, "parallel", 1, "guest.parallel"),
            timeout_s=self._seconds(table, "timeout_s", "guest.timeout_s", 900.0),
            disk=self._size(table, "disk", "guest.disk", 4 << 30),
        )

    def _allow_here(self, table: Mapping[str, Any]) -> None:
        """Refuse what needs a guest in a plan for this machine."""
        for name in ("guest", "kernel"):
            if name in table:
                raise self._refuse(name, "goes without [here], which boots nothing; keep one")
        named = [(f"settings.{name}", name) for name in self._table(table, "settings")]
        for number, each in enumerate(self._tables(table, "vary")):
            named.append((f"vary[{number}].setting", str(each.get("setting", ""))))
        for where, name in named:
            if name and self._place(name, where).kind == BOOT:
                raise self._refuse(where, "boot parameters need a [guest]; [here] boots nothing")

    def _here(self, table: Mapping[str, Any]) -> Here:
        self._known(table, "here", "memory", "timeout_s", "disk")
        return Here(
            memory=self._size(table, "memory", "here.memory", Here.memory),
            timeout_s=self._seconds(table, "timeout_s", "here.timeout_s", Here.timeout_s),
            disk=self._size(table, "disk", "here.disk", Here.disk),
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


_MOST = 10_000
_NODE = re.compile(r"[0-9]+[KMGT]?(,[a-z]+=[0-9-]+)*")


def _text(value: object) -> str:
    """A value as it is written into a file of the kernel's."""
    return str(int(value)) if isinstance(value, bool) else str(value)


@dataclass(frozen=True, kw_only=True)
class Side:
    """What one kernel and one choice of values is.

    Attributes:
        letter: A, B, ..., in the plan's order.
        kernel: what is booted; None where all recordings were made before.
        values: by setting.
    """

    letter: str
    kernel: Kernel | None
    values: Mapping[str, str]

    @property
    def choices(self) -> dict[str, str]:
        """Its value on every axis, the kernel's name among them."""
        kernel = {KERNEL: self.kernel.name} if self.kernel is not None else {}
        return {**kernel, **self.values}


@dataclass(frozen=True, kw_only=True)
class Pair:
    """Two sides that differ in one setting, and what stands for the difference.

    Attributes:
        before: the side that is recorded and predicted from.
        after: the one that is predicted.
        axis: the setting that differs, or `KERNEL`.
        policy: under which `before` is replayed to predict `after`.
        rules: rules to replay it under, "" for those of its own kernel.
        modelled: something stands for the difference; if not, no change is predicted.
    """

    before: Side
    after: Side
    axis: str
    policy: Policy
    rules: str = ""
    modelled: bool = True

    @property
    def title(self) -> str:
        """Such as "A -> B: vm.min_free_kbytes 2048 -> 16384"."""
        values = f"{self.before.choices[self.axis]} -> {self.after.choices[self.axis]}"
        return f"{self.before.letter} -> {self.after.letter}: {self.axis} {values}"


def sides_of(plan: Plan) -> tuple[Side, ...]:
    """All sides of a plan; the first has the first kernel and every setting's first value."""
    kernels: tuple[Kernel | None, ...] = plan.kernels or (None,)
    names = [each.setting for each in plan.vary]
    if plan.design == "grid":
        combinations = list(itertools.product(*(each.values for each in plan.vary)))
    else:
        first = tuple(each.values[0] for each in plan.vary)
        combinations = [first]
        for place, each in enumerate(plan.vary):
            for value in each.values[1:]:
                combinations.append((*first[:place], value, *first[place + 1 :]))
    chosen = itertools.product(kernels, combinations)
    return tuple(
        Side(letter=_letter(number), kernel=kernel, values=dict(zip(names, values, strict=True)))
        for number, (kernel, values) in enumerate(chosen)
    )


def _letter(number: int) -> str:
    """A to Z, then AA, AB, ..., as columns of a spreadsheet."""
    letters = string.ascii_uppercase
    before, last = divmod(number, len(letters))
    return (_letter(before - 1) if before else "") + letters[last]


def pairs_of(plan: Plan, sides: tuple[Side, ...]) -> tuple[Pair, ...]:
    """Every two sides that differ in one setting; the earlier one predicts the later one.

    Two kernels are a pair if the later one has rules.
    """
    pairs = []
    for before, after in itertools.combinations(sides, 2):
        differ = [axis for axis, value in after.choices.items() if before.choices[axis] != value]
        if len(differ) == 1:
            pair = _pair(plan, before, after, differ[0])
            if pair is not None:
                pairs.append(pair)
    return tuple(pairs)


def _pair(plan: Plan, before: Side, after: Side, axis: str) -> Pair | None:
    if axis == KERNEL:
        rules = after.kernel.rules if after.kernel is not None else ""
        if not rules:
            return None
        return Pair(before=before, after=after, axis=axis, policy=Policy(), rules=rules)
    vary = next(each for each in plan.vary if each.setting == axis)
    value = after.values[axis]
    rules = vary.rules[vary.values.index(value)] if vary.rules else ""
    return Pair(
        before=before,
        after=after,
        axis=axis,
        policy=vary.policy(value),
        rules=rules,
        modelled=bool(vary.field or rules),
    )


def side_lines(sides: Sequence[Side]) -> list[str]:
    """One line for each side: all of the first one's values, then what others differ in."""
    first = sides[0].choices
    lines = []
    for number, side in enumerate(sides):
        shown = {
            axis: value
            for axis, value in side.choices.items()
            if not number or first[axis] != value
        }
        lines.append(f"{side.letter}: " + ", ".join(f"{name} {shown[name]}" for name in shown))
    return lines


def described_sides(plan: Plan) -> list[str]:
    """One line for each side, then for each pair with what stands for it in the model."""
    sides = sides_of(plan)
    lines = side_lines(sides)
    for pair in pairs_of(plan, sides):
        stands = str(pair.policy) if pair.policy.given() else f"rules {pair.rules}"
        lines.append(f"{pair.title}; predicted by {stands if pair.modelled else 'no change'}")
    return lines
