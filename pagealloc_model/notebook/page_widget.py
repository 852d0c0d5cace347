"""Widgets with code of their own on the page, which follow the kernel however late they start."""

from __future__ import annotations

import html
import json
from functools import lru_cache
from typing import Any, ClassVar

import anywidget
import ipywidgets
import traitlets
from IPython import get_ipython

from pagealloc_model.notebook import page_file


@lru_cache(maxsize=1)
def keep_all_messages() -> None:
    """Have the kernel that this runs in, if any, keep messages until Jupyter has taken them.

    ZeroMQ drops what exceeds 1,000 of them (ZMQ_SNDHWM, zmq_setsockopt(3)). The widgets of an
    explorer send as many at once, and without the last of them a page finds no model to show.
    """
    thread = getattr(getattr(get_ipython(), "kernel", None), "iopub_thread", None)
    if thread is not None:
        thread.schedule(lambda: thread.socket.set_hwm(0))


class PageWidget(anywidget.AnyWidget):
    """A widget whose later changes reach the page through `channel`.

    anywidget gives a model two seconds by the clock to start, longer than which JupyterLab itself
    may take on a busy machine, and then drops every message to it. The channel is a model of
    Jupyter's own, to which no such limit applies; `page/channel.js` listens to it.
    """

    FOLLOWED: ClassVar[tuple[str, ...]] = ()
    """Traits whose values the channel has as JSON once one of them has changed."""
    channel = traitlets.Instance(ipywidgets.Label, ()).tag(
        sync=True, **ipywidgets.widget_serialization
    )

    def __init__(self, **values: Any) -> None:
        super().__init__(**values)
        if self.FOLLOWED:
            self.observe(self._tell, list(self.FOLLOWED))

    def _tell(self, _: object) -> None:
        self.channel.value = json.dumps({name: getattr(self, name) for name in self.FOLLOWED})


def page_code(name: str) -> str:
    """A script of `page/` for a `PageWidget`."""
    return page_file("channel.js") + page_file(name)


class FoldedHTML(PageWidget):
    """HTML that is replaced in place; parts that the user opened stay open."""

    FOLLOWED = ("value",)
    _esm = page_code("folded_html.js")
    value = traitlets.Unicode("").tag(sync=True)


def folded_text(text: str, summary: str = "The whole table") -> str:
    """Plain text as HTML that opens and closes, in a fixed-width font."""
    words, table = html.escape(summary), html.escape(text)
    return f"<details><summary>{words}</summary><pre>{table}</pre></details>"
