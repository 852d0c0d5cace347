"""`python -m pagealloc_model.cli`."""

import sys

from pagealloc_model.cli.main import main

sys.exit(main())
