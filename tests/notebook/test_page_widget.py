"""Messages of a kernel to the page: none is lost while the page is busy."""

from __future__ import annotations

import time

from jupyter_client.manager import start_new_kernel

MESSAGES = 20_000
"""More than ZeroMQ and the sockets between keep by default."""
CELL = f"""
from IPython.display import display
from pagealloc_model.notebook.controls import PolicyControls
controls = PolicyControls(["pcp_batch"], recorded={{"pcp_batch": 63}})
for _ in range({MESSAGES}):
    display("x" * 200)
"""
BUSY_S = 3


def test_what_widgets_send_to_a_busy_page_is_kept() -> None:
    manager, client = start_new_kernel()
    try:
        asked = client.execute(CELL)
        time.sleep(BUSY_S)
        shown = 0
        while True:
            message = client.get_iopub_msg(timeout=60)
            shown += message["msg_type"] == "display_data"
            is_end = message["content"].get("execution_state") == "idle"
            if is_end and message["parent_header"]["msg_id"] == asked:
                break
    finally:
        client.stop_channels()
        manager.shutdown_kernel(now=True)
    assert shown == MESSAGES
