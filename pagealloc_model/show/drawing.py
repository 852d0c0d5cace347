"""The process that has Chromium draw figures into files: what it waits for may never come.

kaleido limits the time in which a figure is drawn, but not that in which Chromium starts, opens a
page or ends. The process that asks (`files`) ends this one instead.
"""

from __future__ import annotations

import json
import sys

import plotly.io


def main() -> int:
    """Read a JSON object a line (`file`, `figure`, `width` and `height` in pixels), draw them all.

    Returns:
        1 if an error stopped it, which is then the last line of standard error.
    """
    asked = [json.loads(line) for line in sys.stdin]
    columns = {name: [each[name] for each in asked] for name in ("file", "width", "height")}
    figures = [each["figure"] for each in asked]
    try:
        plotly.io.write_images(figures, **columns, scale=1.5, validate=False)
    except (ValueError, RuntimeError, OSError) as error:
        print(" ".join(str(error).split()), file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
