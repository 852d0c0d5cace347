"""Reads the plan of an experiment from a TOML file, and says which key of it cannot be used."""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from pagealloc_model.base.errors import PolicyError, UsageError
from pagealloc_model.policy.kernel_rules import KernelRules
from pagealloc_model.policy.policy import policy_settings
from pagealloc_model.recording.record.perf import parse_size
from pagealloc_model.studies.experiments.plan import (
    DESIGNS,
    PLANS,
    Guest,
    Here,
    Kernel,
    Limits,
    Plan,
    PlanError,
    Vary,
)
from pagealloc_model.studies.experiments.settings import BOOT, Place
from pagealloc_model.studies.experiments.workloads import Workload, workload

_SIZES = {"K": 1 << 10, "M": 1 << 20, "G": 1 << 30}


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
        names = ", ".join(sorted(each.stem for each in PLANS.glob("*.toml")))
        todo = f"name a TOML file, or a shipped plan ({names})"
        raise PlanError(file, "", f"cannot be read ({error.strerror}); {todo}") from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
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


def _text(value: object) -> str:
    """A value as it is written into a file of the kernel's."""
    return str(int(value)) if isinstance(value, bool) else str(value)
