"""`python -m tests.emulated COMMAND …`: run a command with an emulated GPU."""

import os
import subprocess
import sys
import tempfile
from pathlib import Path

from tests import emulated

with tempfile.TemporaryDirectory() as folder:
    env = {**os.environ, **emulated.environment(Path(folder))}
    sys.exit(subprocess.run(sys.argv[1:], env=env, check=False).returncode)
