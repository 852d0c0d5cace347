"""The plan of an experiment: machines, settings, repeats and a workload."""

from __future__ import annotations

import itertools
import re
import string
import tomllib
from collections.abc import Callable, Iterable, Mapping, Sequence
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
    """A plan cannot be used: its key at fault, such as "vary[1].values", and what to write."""

    def __init__(self, file: Path, where: str, what: str) -> None:
        super().__init__(f"{file}: {where}: {what}" if where else f"{file}: {what}")


@dataclass(frozen=True, kw_only=True)
class Kernel:
    """A kernel to boot."""

    name: str
    image: Path
    rules: str = ""


@dataclass(frozen=True, kw_only=True)
class Vary:
    """A setting that differs between sides."""

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
    """How much of the disk an experiment may take, in bytes."""

    run: int = 2 << 30
    free: int = 2 << 30


@dataclass(frozen=True, kw_only=True)
class Plan:
    """Machines, settings, repeats and the workload of an experiment."""

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
    """A plan with other kernels or another number of repeats."""
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
    """Where a setting is made."""

    kind: str
    name: str

    @staticmethod
    def named(text: str) -> Place:
        """The place that a plan names."""
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
    """Make settings on this machine and read each back; of several words, the one in brackets."""
    for name, value in values.items():
        place = Place.named(name)
        file = place.file(root)
        try:
            if place.kind != BOOT:
                file.write_text(value)
            text = file.read_text().strip()
        except OSError as error:
            raise UsageError(
                f"{name}={value}: cannot be set in this kernel ({error.strerror})"
            ) from None
        words, is_boot = text.split(), place.kind == BOOT
        wanted = f"{place.name}={value}" if is_boot else f"[{value}]"
        if wanted not in words and (is_boot or words != value.split()):
            raise UsageError(f"{name}={value}: this kernel keeps {text!r}")


def current_values(names: Iterable[str], root: Path = Path("/")) -> dict[str, str]:
    """Values that settings (no boot parameters) have on this machine, as `apply` makes them."""
    values = {}
    for name in names:
        try:
            text = Place.named(name).file(root).read_text().strip()
        except OSError as error:
            raise UsageError(f"{name}: cannot be read in this kernel ({error.strerror})") from None
        chosen = [word.strip("[]") for word in text.split() if word.startswith("[")]
        values[name] = chosen[0] if chosen else text
    return values


_SIZES = {"K": 1 << 10, "M": 1 << 20, "G": 1 << 30}
_MOST = 10_000
_NODE = re.compile(r"[0-9]+[KMGT]?(,[a-z]+=[0-9-]+)*")


def read_plan(path: str | Path) -> Plan:
    """The plan that a TOML file is; paths in it are relative to the file."""
    file = Path(path)
    try:
        table = tomllib.loads(text_of(given(file), "utf-8", todo="give a plan, which is TOML"))
    except RecordingError as error:
        names = ", ".join(sorted(plan.stem for plan in PLANS.glob("*.toml")))
        todo = f"name a TOML file, or a shipped plan ({names})"
        raise PlanError(file, "", f"{error.what}; {todo}") from None
    except (tomllib.TOMLDecodeError, RecursionError) as error:
        raise PlanError(file, "", f"is no TOML: {error}") from None
    names = "name kernel vary design settings repeats workload guest limits record here"
    top = _Section(file, "", table, names)
    settings = top.table("settings")
    if "here" in table:
        _refuse_guests(top, settings)
    design = table.get("design", DESIGNS[0])
    if design not in DESIGNS:
        raise top.refuse("design", f"{design!r} is none; write one of {', '.join(DESIGNS)}")
    kernels = tuple(_kernel(part) for part in top.tables("kernel", "image name rules"))
    vary = tuple(_vary(part) for part in top.tables("vary", "setting values policy rules"))
    if not vary and len(kernels) < 2:
        raise top.refuse("vary", "nothing differs; add a [[vary]] table, or a second kernel")
    for name in settings.values:
        settings.convert(name, name, Place.named)
    for name, many in (
        ("kernel", [kernel.name for kernel in kernels]),
        ("vary", [axis.setting for axis in vary] + list(settings.values)),
    ):
        twice = [own for own in many if many.count(own) > 1]
        if twice:
            raise top.refuse(name, f"{twice[0]} is given twice; keep one")
    record = top.table("record", "interval_s buffer locks")
    here = top.table("here", "memory timeout_s disk")
    limits = top.table("limits", "run free")
    return Plan(
        name=str(table.get("name", file.stem)),
        kernels=kernels,
        vary=vary,
        design=design,
        settings={name: _text(value) for name, value in settings.values.items()},
        guest=_guest(top),
        here=Here(**here.converted(memory=_size, timeout_s=_seconds, disk=_size))
        if "here" in table
        else None,
        limits=Limits(**limits.converted(run=_size, free=_size)),
        **top.converted(repeats=_count),
        **record.converted(interval_s=_seconds, buffer=_buffer, locks=_switch),
        **_workload(top),
    )


class _Section:
    """A table of a plan; every complaint names the key."""

    def __init__(self, file: Path, where: str, values: Mapping[str, Any], names: str = "") -> None:
        self.file = file
        self.values = values
        self._where = where
        known = names.split()
        for name in values if known else ():
            if name not in known:
                raise self.refuse(name, f"no such key; there are {', '.join(known)}")

    def refuse(self, name: str, what: str) -> PlanError:
        """The error of a key of the table, or of the table itself for ""."""
        return PlanError(self.file, ".".join(filter(None, (self._where, name))), what)

    def table(self, name: str, names: str = "") -> _Section:
        value = self.values.get(name, {})
        if not isinstance(value, dict):
            raise self.refuse(name, f"is no table; write it as [{name}]")
        return _Section(self.file, name, value, names)

    def tables(self, name: str, names: str = "") -> list[_Section]:
        value = self.values.get(name, [])
        if not isinstance(value, list) or not all(isinstance(part, dict) for part in value):
            raise self.refuse(name, f"is no list of tables; write each as [[{name}]]")
        return [
            _Section(self.file, f"{name}[{place}]", part, names) for place, part in enumerate(value)
        ]

    def convert(self, name: str, value: Any, conversion: Callable[[Any], Any]) -> Any:
        """A value converted; what the conversion refuses, the plan refuses."""
        try:
            return conversion(value)
        except PageallocError as error:
            raise self.refuse(name, str(error).removeprefix("--buffer ")) from None

    def converted(self, **conversions: Callable[[Any], Any]) -> dict[str, Any]:
        """The keys that the table has, each converted."""
        return {
            name: self.convert(name, self.values[name], conversion)
            for name, conversion in conversions.items()
            if name in self.values
        }


def _checked(value: Any, is_right: bool, what: str) -> Any:
    if not is_right:
        raise UsageError(f"{value!r} {what}")
    return value


def _count(value: Any) -> int:
    if type(value) is int and value > _MOST:
        raise UsageError(f"is more than {_MOST}")
    return _checked(value, type(value) is int and value >= 1, "is no number of 1 or more")


def _seconds(value: Any) -> float:
    is_right = type(value) in (int, float) and value > 0
    return float(_checked(value, is_right, "is no number of seconds above 0"))


def _switch(value: Any) -> bool:
    return _checked(value, isinstance(value, bool), "is neither true nor false")


def _words(value: Any) -> tuple[str, ...]:
    return tuple(map(_text, _checked(value, isinstance(value, list), 'is no list; write ["..."]')))


def _size(value: Any) -> int:
    text = str(value).upper()
    if text[:-1].isdecimal() and text[-1] in _SIZES:
        return int(text[:-1]) * _SIZES[text[-1]]
    is_right = type(value) is int and value >= 0
    return _checked(value, is_right, 'is no size; write one such as "2G"')


def _buffer(value: Any) -> int:
    return parse_size(str(value))


def _rules(text: Any) -> str:
    return KernelRules.named(str(text)).spelled() if text else ""


def _text(value: object) -> str:
    """A value as it is written into a file of the kernel's."""
    return str(int(value)) if isinstance(value, bool) else str(value)


def _refuse_guests(top: _Section, settings: _Section) -> None:
    """Refuse what needs a guest in a plan for this machine."""
    for name in ("guest", "kernel"):
        if name in top.values:
            raise top.refuse(name, "goes without [here], which boots nothing; keep one")
    varied = [(part, "setting", part.values.get("setting")) for part in top.tables("vary")]
    for part, key, name in [*((settings, name, name) for name in settings.values), *varied]:
        if name and part.convert(key, str(name), Place.named).kind == BOOT:
            raise part.refuse(key, "boot parameters need a [guest]; [here] boots nothing")


def _kernel(part: _Section) -> Kernel:
    if not part.values.get("image"):
        raise part.refuse("image", "is missing; name a bzImage")
    image = (part.file.parent / str(part.values["image"])).absolute()
    name = str(part.values.get("name", image.name))
    return Kernel(name=name, image=image, **part.converted(rules=_rules))


def _vary(part: _Section) -> Vary:
    setting = str(part.values.get("setting", ""))
    if not setting:
        raise part.refuse("setting", "is missing; name a sysctl, a path below /sys, or boot:NAME")
    place = part.convert("setting", setting, Place.named)
    values = part.converted(values=_words).get("values", ())
    if len(set(values)) < 2 or len(set(values)) < len(values):
        raise part.refuse("values", "give two or more different values")
    name = str(part.values.get("policy", place.field))
    if name and name not in policy_settings():
        raise part.refuse("policy", f"no field {name!r}; there are {', '.join(policy_settings())}")
    rules = part.converted(rules=_words).get("rules", ())
    if rules and len(rules) != len(values):
        raise part.refuse("rules", f"give {len(values)}, one for each value")
    rules = tuple(part.convert("rules", text, _rules) for text in rules)
    vary = Vary(setting=setting, values=values, field=name, rules=rules)
    for value in values:
        try:
            vary.policy(value)
        except PolicyError as error:
            hint = 'write policy = "" if no field stands for this setting'
            raise part.refuse("values", f"{error}; {hint}") from None
    return vary


def _guest(top: _Section) -> Guest:
    part = top.table("guest", "cpus memory nodes boot kvm parallel timeout_s disk")
    kvm = part.values.get("kvm", Guest.kvm)
    if kvm not in ("auto", "yes", "no"):
        raise part.refuse("kvm", f'{kvm!r} is none; write "auto", "yes" or "no"')
    if part.converted(memory=_size) == {"memory": 0}:
        raise part.refuse("memory", "a guest needs memory")
    guest = Guest(
        kvm=kvm,
        memory=str(part.values.get("memory", Guest.memory)),
        **part.converted(cpus=_count, parallel=_count, timeout_s=_seconds, disk=_size),
        **part.converted(nodes=_words, boot=_words),
    )
    for node in guest.nodes:
        if not _NODE.fullmatch(node):
            raise part.refuse("nodes", f'{node!r} is none; write such as "256M,cpus=0-1"')
    return guest


def _workload(top: _Section) -> dict[str, Any]:
    """The workload with its seed and amount, as attributes of a plan."""
    part = top.table("workload", "name command prepare seed amount")
    name, command = part.values.get("name"), part.values.get("command")
    if (name is None) == (command is None):
        raise part.refuse("", "give either name, of a shipped one, or command")
    if name is not None:
        if "prepare" in part.values:
            raise part.refuse("prepare", "goes with command, not with name")
        chosen = part.convert("name", str(name), workload)
    else:
        words, prepare = str(command), str(part.values.get("prepare", ""))
        chosen = Workload(name=words, meaning="own", command=words, prepare=prepare)
    return {"workload": chosen, **part.converted(seed=_count, amount=_count)}


@dataclass(frozen=True, kw_only=True)
class Side:
    """What one kernel and one choice of values is."""

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
    """Two sides that differ in one setting, and what stands for the difference."""

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
    names = [axis.setting for axis in plan.vary]
    if plan.design == "grid":
        combinations = list(itertools.product(*(axis.values for axis in plan.vary)))
    else:
        first = tuple(axis.values[0] for axis in plan.vary)
        combinations = [first]
        for place, axis in enumerate(plan.vary):
            for value in axis.values[1:]:
                combinations.append((*first[:place], value, *first[place + 1 :]))
    chosen = itertools.product(kernels, combinations)
    return tuple(
        Side(letter=_letter(number), kernel=kernel, values=dict(zip(names, values, strict=True)))
        for number, (kernel, values) in enumerate(chosen)
    )


def _letter(number: int) -> str:
    """A to Z, then AA, AB, ..., as columns of a spreadsheet."""
    before, last = divmod(number, len(string.ascii_uppercase))
    return (_letter(before - 1) if before else "") + string.ascii_uppercase[last]


def pairs_of(plan: Plan, sides: tuple[Side, ...]) -> tuple[Pair, ...]:
    """Every two sides that differ in one setting; the earlier one predicts the later one.

    Two kernels are a pair if the later one has rules.
    """
    varied = {axis.setting: axis for axis in plan.vary}
    pairs = []
    for before, after in itertools.combinations(sides, 2):
        differ = [axis for axis, value in after.choices.items() if before.choices[axis] != value]
        if len(differ) != 1:
            continue
        axis, policy, field = differ[0], Policy(), ""
        if axis == KERNEL:
            rules = after.kernel.rules if after.kernel is not None else ""
            if not rules:
                continue
        else:
            vary, value = varied[axis], after.values[axis]
            policy, field = vary.policy(value), vary.field
            rules = vary.rules[vary.values.index(value)] if vary.rules else ""
        modelled = bool(field or rules)
        pairs.append(
            Pair(
                before=before, after=after, axis=axis, policy=policy, rules=rules, modelled=modelled
            )
        )
    return tuple(pairs)


def side_lines(sides: Sequence[Side]) -> list[str]:
    """One line for each side: all of the first one's values, then those that others differ in."""
    first = sides[0].choices
    lines = []
    for number, side in enumerate(sides):
        shown = (
            f"{axis} {value}"
            for axis, value in side.choices.items()
            if not number or first[axis] != value
        )
        lines.append(f"{side.letter}: {', '.join(shown)}")
    return lines


def described_sides(plan: Plan) -> list[str]:
    """One line for each side, then for each pair with what stands for it in the model."""
    sides = sides_of(plan)
    lines = side_lines(sides)
    for pair in pairs_of(plan, sides):
        stands = str(pair.policy) if pair.policy.given() else f"rules {pair.rules}"
        lines.append(f"{pair.title}; predicted by {stands if pair.modelled else 'no change'}")
    return lines
