"""The flags and environment variables of `gateway serve`, as it tells them itself."""

import re
import subprocess

from harness import BINARIES

HELP = subprocess.run(
    [BINARIES / "gateway", "serve", "--help"], check=True, capture_output=True, text=True, timeout=30
).stdout
FLAGS = set(re.findall(r"^ +(?:-\w, )?(--[\w-]+)", HELP, re.M))
VARIABLES = set(re.findall(r"\[env: (TIDEGATE_\w+)=", HELP))
