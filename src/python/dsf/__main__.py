"""``python -m dsf`` is the program."""

import subprocess
import sys

from ._program import find

sys.exit(subprocess.call([find(), *sys.argv[1:]]))
