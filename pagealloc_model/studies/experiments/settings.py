"""What an experiment can set on a machine, and the field of `Policy` that stands for it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

from pagealloc_model.base.errors import UsageError
from pagealloc_model.policy.policy import policy_settings

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
        if text.startswith(_SYSFS):
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
