"""The plan of an experiment: machines, settings, repeats and a workload."""

from __future__ import annotations

import itertools
import re
import string
import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from pagealloc_model.base.errors import PageallocError, PolicyError, RecordingError, UsageError
from pagealloc_model.base.files import given, text_of
from pagealloc_model.guests.inside import BOOT, FOLIO_KIB, SIZES, setting_file
from pagealloc_model.guests.workloads import Workload, workload
from pagealloc_model.policy.kernel_rules import KernelRules
from pagealloc_model.policy.policy import Policy, policy_settings
from pagealloc_model.recording.record.perf import USUAL_EVENTS, parse_size
from pagealloc_model.sweeps.design import grid, one_at_a_time

PLANS = Path(__file__).parent / "plans"
DESIGNS = ("one_at_a_time", "grid")
KERNEL = "kernel"
"""The axis of kernels, where a plan has several."""
_SIZES = {"K": 1 << 10, "M": 1 << 20, "G": 1 << 30}
_MOST = 10_000
_NODE = re.compile(r"[0-9]+[KMGT]?(,[a-z]+=[0-9-]+)*")
_BY_PLACE = {
    "/sys/kernel/mm/transparent_hugepage/defrag": "thp_defrag",
    SIZES: "huge_anon_orders",
}
"""Fields of files in sysfs; a sysctl's field has its name."""


class PlanError(PageallocError):
    """A plan cannot be used: its key at fault, such as "vary[1].values", and what to write."""

    def __init__(self, file: Path, where: str, what: str) -> None:
        super().__init__(f"{file}: {where}: {what}" if where else f"{file}: {what}")


@dataclass(frozen=True, kw_only=True)
class Kernel:
    """A kernel to boot; `rules` and `policy` (as "field=value") predict it from another one."""

    image: Path
    name: str = ""
    rules: str = ""
    policy: tuple[str, ...] = ()


@dataclass(frozen=True, kw_only=True)
class Vary:
    """A setting that differs between sides; `field` and `rules` stand for its values."""

    setting: str
    values: tuple[str, ...]
    field: str = ""
    rules: tuple[str, ...] = ()

    def policy(self, value: str) -> Policy:
        """The policy that stands for a value; an empty one if no field does."""
        value = str(orders_mask(value)) if self.setting == SIZES else value
        return Policy.parse([f"{self.field}={value}"]) if self.field else Policy()


@dataclass(frozen=True, kw_only=True)
class Guest:
    """The machine that is booted.

    Attributes:
        memory: as virtme-ng takes it, such as "512M".
        nodes: memory and CPUs of each NUMA node, as virtme-ng takes them; () for one node.
        boot: boot parameters of all runs.
        kvm: "auto" tries it, "no" does without, "yes" relies on it.
        clock: of an emulated guest: "host", or "instructions", with which its time goes on by 8 ns
            with each instruction of any CPU, so that what else the host does changes little.
        parallel: guests at once.
        timeout_s: the longest that a run may take.
        disk: bytes of the scratch disk's file "big", which takes no room; 0 for no disk.
    """

    cpus: int = 2
    memory: str = "512M"
    nodes: tuple[str, ...] = ()
    boot: tuple[str, ...] = ()
    kvm: str = "auto"
    clock: str = "host"
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
    """Bytes of the disk that a run may take, and that stay free."""

    run: int = 2 << 30
    free: int = 2 << 30


@dataclass(frozen=True, kw_only=True)
class Plan:
    """Machines, settings, repeats and the workload; `both_ways`: each side predicts the others."""

    name: str
    vary: tuple[Vary, ...]
    workload: Workload
    kernels: tuple[Kernel, ...] = ()
    design: str = DESIGNS[0]
    both_ways: bool = False
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
    events: tuple[str, ...] = (USUAL_EVENTS,)


def find_plan(name: str | Path) -> Path:
    """A plan's file: what the name is a path of, or a shipped plan of that name."""
    file, shipped = Path(name), PLANS / f"{name}.toml"
    return shipped if not file.exists() and shipped.exists() else file


def changed_plan(plan: Plan, images: Sequence[str | Path], repeats: int | None = None) -> Plan:
    """A plan with other kernels or another number of repeats.

    As many images as the plan has kernels take their places, in order; others are on their own.
    """
    if images and plan.here is not None:
        raise UsageError(f"{plan.name} runs on this machine's own kernel; leave --kernel out")
    if repeats is not None and not 1 <= repeats <= _MOST:
        raise UsageError(f"--repeats {repeats}: give at least one and at most {_MOST}")
    files = [Path(image).absolute() for image in images]
    kernels = tuple(Kernel(name=file.name, image=file) for file in files)
    if len(kernels) == len(plan.kernels):
        kernels = tuple(
            replace(own, image=new.image, name=new.name if own.name == own.image.name else own.name)
            for new, own in zip(kernels, plan.kernels, strict=True)
        )
    return replace(plan, kernels=kernels or plan.kernels, repeats=repeats or plan.repeats)


def orders_mask(sizes: str) -> int:
    """Mask of the orders of sizes in KiB, such as "64 2048" (S10.13); "none" has none."""
    known = [str(kib) for kib in FOLIO_KIB]
    chosen = [] if sizes == "none" else sizes.split() or [""]
    for kib in chosen:
        if kib not in known or chosen.count(kib) > 1:
            raise PolicyError(f"{sizes!r} are no sizes; write some of {' '.join(known)}, or none")
    return sum(int(kib) // 4 for kib in chosen)


def policy_field(name: str) -> str:
    """The field of `Policy` that stands for a setting, "" if there is none."""
    if name.startswith(("/", BOOT)):
        return _BY_PLACE.get(name, "")
    last = name.rpartition(".")[2]
    return last if last in policy_settings() else ""


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


def _text(value: object) -> str:
    """A value as it is written into a file of the kernel's."""
    return str(int(value)) if isinstance(value, bool) else str(value)


def _words(value: Any) -> tuple[str, ...]:
    return tuple(map(_text, _checked(value, isinstance(value, list), 'is no list; write ["..."]')))


def _size(value: Any) -> int:
    text = str(value).upper()
    if text[:-1].isdecimal() and text[-1] in _SIZES:
        return int(text[:-1]) * _SIZES[text[-1]]
    is_right = type(value) is int and value >= 0
    return _checked(value, is_right, 'is no size; write one such as "2G"')


def _switch(value: Any) -> bool:
    return _checked(value, isinstance(value, bool), "is neither true nor false")


def _memory(value: Any) -> str:
    if not _size(value):
        raise UsageError("a guest needs memory")
    return str(value)


def _nodes(value: Any) -> tuple[str, ...]:
    what = 'is none; write such as "256M,cpus=0-1"'
    return tuple(_checked(node, bool(_NODE.fullmatch(node)), what) for node in _words(value))


def _rules(text: Any) -> str:
    return KernelRules.named(str(text)).spelled() if text else ""


def _policy(value: Any) -> tuple[str, ...]:
    words = _words(value)
    Policy.parse(words)
    return words


def _setting(value: Any) -> str:
    if value:
        setting_file(str(value))
    return str(value)


_KVM = ("auto", "yes", "no")
CLOCKS = HOST_CLOCK, INSTRUCTIONS = "host", "instructions"
"""What an emulated guest's time is: the host's, or counted in instructions."""
_FIELDS: dict[str, Any] = dict(
    name=str,
    kernel=[dict(image=str, name=str, rules=_rules, policy=_policy)],
    vary=[
        dict(
            setting=_setting,
            values=_words,
            policy=str,
            rules=lambda value: tuple(map(_rules, _words(value))),
        )
    ],
    design=lambda name: _checked(
        name, name in DESIGNS, f"is none; write one of {', '.join(DESIGNS)}"
    ),
    both_ways=_switch,
    settings={},
    repeats=_count,
    workload=dict(
        name=lambda name: workload(str(name)), command=str, prepare=str, seed=_count, amount=_count
    ),
    guest=dict(
        cpus=_count,
        memory=_memory,
        nodes=_nodes,
        boot=_words,
        kvm=lambda name: _checked(name, name in _KVM, 'is none; write "auto", "yes" or "no"'),
        clock=lambda name: _checked(name, name in CLOCKS, f"is none of {', '.join(CLOCKS)}"),
        parallel=_count,
        timeout_s=_seconds,
        disk=_size,
    ),
    limits=dict(run=_size, free=_size),
    record=dict(
        interval_s=_seconds,
        buffer=lambda size: parse_size(str(size)),
        locks=_switch,
        events=_words,
    ),
    here=dict(memory=_size, timeout_s=_seconds, disk=_size),
)
"""Keys of a plan's file: what converts a value, the keys of a table, or those of each in a list."""


def _read(file: Path, where: str, value: Any, fields: Any) -> Any:
    """A value of a plan converted; every complaint names the key."""
    if isinstance(fields, list):
        if not isinstance(value, list) or not all(isinstance(part, dict) for part in value):
            raise PlanError(file, where, f"is no list of tables; write each as [[{where}]]")
        return [_read(file, f"{where}[{n}]", part, fields[0]) for n, part in enumerate(value)]
    if isinstance(fields, dict):
        if not isinstance(value, dict):
            raise PlanError(file, where, f"is no table; write it as [{where}]")
        below = f"{where}." if where else ""
        for name in value if fields else ():
            if name not in fields:
                known = ", ".join(fields)
                raise PlanError(file, f"{below}{name}", f"no such key; there are {known}")
        for name in () if fields else value:
            _read(file, f"{below}{name}", name, _setting)
        return {
            name: _read(file, f"{below}{name}", own, fields.get(name, _text))
            for name, own in value.items()
        }
    try:
        return fields(value)
    except PageallocError as error:
        raise PlanError(file, where, str(error).removeprefix("--buffer ")) from None


def read_plan(path: str | Path) -> Plan:
    """The plan that a TOML file is; paths in it are relative to the file."""
    file = Path(path)

    def refused(where: str, what: str) -> PlanError:
        return PlanError(file, where, what)

    try:
        table = tomllib.loads(text_of(given(file), "utf-8", todo="give a plan, which is TOML"))
    except RecordingError as error:
        names = ", ".join(sorted(plan.stem for plan in PLANS.glob("*.toml")))
        raise refused("", f"{error.what}; name a TOML file, or a shipped plan ({names})") from None
    except (ValueError, RecursionError) as error:
        raise refused("", f"is no TOML: {error}") from None
    for name in ("guest", "kernel"):
        if "here" in table and name in table:
            raise refused(name, "goes without [here], which boots nothing; keep one")
    about = _read(file, "", table, _FIELDS)
    kernels = []
    for place, part in enumerate(about.pop("kernel", ())):
        if not part.get("image"):
            raise refused(f"kernel[{place}].image", "is missing; name a bzImage")
        image = (file.parent / part["image"]).absolute()
        kernels.append(Kernel(**{"name": image.name, **part, "image": image}))
    settings, vary = about.get("settings", {}), []
    try:
        orders_mask(settings.get(SIZES, "none"))
    except PolicyError as error:
        raise refused(f"settings.{SIZES}", str(error)) from None
    places = {f"settings.{name}": name for name in settings}
    for place, part in enumerate(about.pop("vary", ())):
        where, setting = f"vary[{place}]", part.get("setting")
        values, rules = part.get("values", ()), part.get("rules", ())
        if not setting:
            todo = "name a sysctl, a path below /sys, or boot:NAME"
            raise refused(f"{where}.setting", f"is missing; {todo}")
        if len(set(values)) < 2 or len(set(values)) < len(values):
            raise refused(f"{where}.values", "give two or more different values")
        name = part.get("policy", policy_field(setting))
        if name and name not in policy_settings():
            known = ", ".join(policy_settings())
            raise refused(f"{where}.policy", f"no field {name!r}; there are {known}")
        if rules and len(rules) != len(values):
            raise refused(f"{where}.rules", f"give {len(values)}, one for each value")
        axis = Vary(setting=setting, values=values, field=name, rules=rules)
        try:
            for value in values:
                axis.policy(value)
        except PolicyError as error:
            hint = 'write policy = "" if no field stands for this setting'
            raise refused(f"{where}.values", f"{error}; {hint}") from None
        vary.append(axis)
        places[f"{where}.setting"] = setting
    if not vary and len(kernels) < 2:
        raise refused("vary", "nothing differs; add a [[vary]] table, or a second kernel")
    for name, many in (("kernel", [own.name for own in kernels]), ("vary", [*places.values()])):
        twice = [own for own in many if many.count(own) > 1]
        if twice:
            raise refused(name, f"{twice[0]} is given twice; keep one")
    if "here" in about:
        for where, name in places.items():
            if name.startswith(BOOT):
                raise refused(where, "boot parameters need a [guest]; [here] boots nothing")
        about["here"] = Here(**about["here"])
    for name, kind in (("guest", Guest), ("limits", Limits)):
        about[name] = kind(**about.get(name, {}))
    load = about.pop("workload", {})
    if ("name" in load) == ("command" in load):
        raise refused("workload", "give either name, of a shipped one, or command")
    if "name" in load and "prepare" in load:
        raise refused("workload.prepare", "goes with command, not with name")
    command, prepare = load.pop("command", ""), load.pop("prepare", "")
    own = Workload(name=command, meaning="own", command=command, prepare=prepare)
    chosen = load.pop("name", own)
    about = {"name": file.stem, **about.pop("record", {}), **about, **load}
    return Plan(vary=tuple(vary), kernels=tuple(kernels), workload=chosen, **about)


@dataclass(frozen=True, kw_only=True)
class Side:
    """One kernel with one choice of values."""

    letter: str
    kernel: Kernel | None
    values: Mapping[str, str]

    @property
    def choices(self) -> dict[str, str]:
        """Its value on every axis, the kernel's name among them."""
        kernel = {KERNEL: self.kernel.name} if self.kernel is not None else {}
        return {**kernel, **self.values}


@dataclass(frozen=True)
class Pair:
    """Two sides that differ in one setting, and what stands for the difference."""

    before: Side
    after: Side
    axis: str
    policy: Policy
    rules: str
    modelled: bool

    @property
    def title(self) -> str:
        """Such as "A -> B: vm.min_free_kbytes 2048 -> 16384"."""
        values = f"{self.before.choices[self.axis]} -> {self.after.choices[self.axis]}"
        return f"{self.before.letter} -> {self.after.letter}: {self.axis} {values}"


def sides_of(plan: Plan) -> tuple[Side, ...]:
    """All sides of a plan; the first has the first kernel and every setting's first value."""
    kernels: tuple[Kernel | None, ...] = plan.kernels or (None,)
    values = {axis.setting: axis.values for axis in plan.vary}
    if plan.design == "grid":
        points = grid(values)
    else:
        points = one_at_a_time({name: own[1:] for name, own in values.items()})
    first = {name: own[0] for name, own in values.items()}
    letters = (
        "".join(letter)
        for size in itertools.count(1)
        for letter in itertools.product(string.ascii_uppercase, repeat=size)
    )
    chosen = itertools.product(kernels, points)
    return tuple(
        Side(letter=letter, kernel=kernel, values={**first, **point})
        for letter, (kernel, point) in zip(letters, chosen, strict=False)
    )


def pairs_of(plan: Plan, sides: tuple[Side, ...]) -> tuple[Pair, ...]:
    """Every two sides that differ in one setting; the earlier one predicts the later one, or each.

    Two kernels are a pair if the later one has rules or a policy.
    """
    varied = {axis.setting: axis for axis in plan.vary}
    pairs = []
    two = itertools.permutations if plan.both_ways else itertools.combinations
    for before, after in two(sides, 2):
        differ = [axis for axis, value in after.choices.items() if before.choices[axis] != value]
        if len(differ) != 1:
            continue
        axis, policy, is_modelled = differ[0], Policy(), True
        if axis == KERNEL:
            if not after.kernel or not (after.kernel.rules or after.kernel.policy):
                continue
            rules, policy = after.kernel.rules, Policy.parse(after.kernel.policy)
        else:
            vary, value = varied[axis], after.values[axis]
            policy = vary.policy(value)
            rules = vary.rules[vary.values.index(value)] if vary.rules else ""
            is_modelled = bool(vary.field or rules)
        pairs.append(Pair(before, after, axis, policy, rules, is_modelled))
    return tuple(pairs)


def side_lines(sides: Sequence[Side]) -> list[str]:
    """One line for each side: all of the first one's values, then those that others differ in."""
    first: Mapping[str, str] = {}
    lines = []
    for side in sides:
        shown = [
            f"{axis} {value}" for axis, value in side.choices.items() if first.get(axis) != value
        ]
        lines.append(f"{side.letter}: {', '.join(shown)}")
        first = first or side.choices
    return lines


def described_sides(plan: Plan) -> list[str]:
    """One line for each side, then for each pair with what stands for it in the model."""
    sides = sides_of(plan)
    lines = side_lines(sides)
    for pair in pairs_of(plan, sides):
        stands = str(pair.policy) if pair.policy.given() else f"rules {pair.rules}"
        lines.append(f"{pair.title}; predicted by {stands if pair.modelled else 'no change'}")
    return lines
