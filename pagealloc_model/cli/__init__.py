"""The `pagealloc` command: arguments in, calls of the library, text or JSON out."""

import sys

try:
    from pagealloc_model.cli.main import main as main
except KeyboardInterrupt:
    print("pagealloc: interrupted", file=sys.stderr)
    sys.exit(130)
