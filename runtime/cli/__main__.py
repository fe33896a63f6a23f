"""`python -m interturn.runtime.cli` is `interturn`."""

import sys

from interturn.runtime.cli import main

if __name__ == "__main__":
    sys.exit(main())
