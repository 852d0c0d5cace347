"""JupyterLab on a folder of notebooks."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from pagealloc_model.notebook.own_jupyter import OVER_SOCKETS, own_jupyter

SETTINGS = {
    "@jupyterlab/apputils-extension:notification": {
        "fetchNews": "false",
        "checkForUpdates": False,
    }
}
"""What users have not set themselves: Jupyter asks nothing over a notebook, and no other host."""
EXTENSIONS = {"jupyterlab": True, "jupyter_server_terminals": True, "jupyter_lsp": True}
"""Of the server: others, such as Voila's, read files of the working directory."""


def open_lab(notebook: Path, arguments: list[str], *, keeps_outputs: bool) -> None:
    """Serve JupyterLab on a notebook's folder until interrupted.

    Args:
        notebook: to be opened.
        arguments: JupyterLab's own options.
        keeps_outputs: False to save the notebooks of this folder without outputs; those in folders
            below keep them.
    """
    from jupyterlab.commands import get_user_settings_dir
    from jupyterlab.labapp import LabApp

    chosen_by_user = get_user_settings_dir()  # data, such as the theme
    with own_jupyter(beside=True) as own:
        (own / "settings").mkdir()
        (own / "settings" / "overrides.json").write_text(json.dumps(SETTINGS), encoding="utf-8")
        words = [
            str(notebook),
            f"--LabApp.app_settings_dir={own / 'settings'}",
            f"--LabApp.user_settings_dir={chosen_by_user}",
            f"--ServerApp.jpserver_extensions={EXTENSIONS}",
            # language servers are programs that it would look for in the working directory
            "--LanguageServerManager.autodetect=False",
        ]
        for owner, values in OVER_SOCKETS.items():
            words += [f"--{owner}.{name}={value}" for name, value in values.items()]
        if not keeps_outputs:
            hook = f"{without_outputs.__module__}.{without_outputs.__qualname__}"
            words.append(f"--FileContentsManager.pre_save_hook={hook}")
        LabApp.launch_instance([*words, *arguments])


def without_outputs(model: dict[str, Any], path: str, **_: Any) -> None:
    """Before a notebook of the root folder is saved: make it as it is committed.

    Outputs, counts and what JupyterLab notes of the kernel are taken out.

    Args:
        model: of the file, as Jupyter's contents manager has it; changed in place.
        path: of the file, relative to the root folder.
    """
    notebook = model.get("content")
    if model["type"] != "notebook" or "/" in path.strip("/") or not isinstance(notebook, Mapping):
        return
    for cell in notebook["cells"]:
        for noted in ("execution", "trusted", "collapsed", "scrolled"):
            cell["metadata"].pop(noted, None)
        if cell["cell_type"] == "code":
            cell["outputs"], cell["execution_count"] = [], None
    kept = {"kernelspec", "language_info"}
    for name in set(notebook["metadata"]) - kept:
        del notebook["metadata"][name]
    if "language_info" in notebook["metadata"]:
        notebook["metadata"]["language_info"] = {"name": "python"}
