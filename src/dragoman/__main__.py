"""`python -m dragoman`."""

import sys

from .cli import main

sys.exit(main())
