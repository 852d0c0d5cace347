"""Other programs: Python children that import nothing from where the user stands."""

from __future__ import annotations

import os
import sys

_LEADS_TO_OTHER_CODE = ("PYTHON", "LD_", "JUPYTER", "IPYTHON", "BASH_ENV", "BASH_FUNC_", "GCONV_")


def python_words(module: str, *arguments: str) -> list[str]:
    """A command line that runs a module with this Python, not from the working directory."""
    return [sys.executable, "-P", "-m", module, *arguments]


def clean_environment() -> dict[str, str]:
    """This process's variables without those that make programs load other code."""
    return {
        name: value
        for name, value in os.environ.items()
        if name != "ENV" and not name.startswith(_LEADS_TO_OTHER_CODE)
    } | {"PYTHONSAFEPATH": "1"}
