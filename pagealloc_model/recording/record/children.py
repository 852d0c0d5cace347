"""Other programs: Python children that import nothing from where the user stands."""

from __future__ import annotations

import os
import sys

_PASSED_ON = (
    {"PATH", "HOME", "USER", "LOGNAME", "SHELL", "TMPDIR", "SUDO_USER", "SUDO_UID", "SUDO_GID"}
    | {"TERM", "COLORTERM", "COLUMNS", "LINES", "NO_COLOR", "TZ", "LANG", "LANGUAGE"}
    | {"DISPLAY", "WAYLAND_DISPLAY", "XAUTHORITY", "DBUS_SESSION_BUS_ADDRESS", "DESKTOP_SESSION"}
    | {"BROWSER", "BROWSER_PATH", "NUMBA_NUM_THREADS", "NUMBA_DISABLE_JIT"}
)
_PASSED_ON_BY_PREFIX = ("LC_", "XDG_", "PAGEALLOC_")
"""What a program needs of the user, the terminal, the desktop and this package."""


def python_words(module: str, *arguments: str) -> list[str]:
    """A command line that runs a module with this Python, not from the working directory."""
    return [sys.executable, "-P", "-m", module, *arguments]


def clean_environment() -> dict[str, str]:
    """This process's variables that are known to make no program load other code."""
    return {
        name: value
        for name, value in os.environ.items()
        if name in _PASSED_ON or name.startswith(_PASSED_ON_BY_PREFIX)
    } | {"PYTHONSAFEPATH": "1"}
