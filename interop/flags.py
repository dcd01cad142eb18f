"""The flags and environment variables of the gateway's roles, as it tells them itself."""

import re
import subprocess

from harness import BINARIES



def told(role):
    """Flags and variables of a role."""
    text = subprocess.run(
        [BINARIES / "gateway", role, "--help"], check=True, capture_output=True, text=True, timeout=30
    ).stdout
    flags = set(re.findall(r"^ +(?:-\w, )?(--[\w-]+)", text, re.M))
    return flags, set(re.findall(r"\[env: (TIDEGATE_\w+)=", text))


FLAGS, VARIABLES = told("serve")
AGGREGATE_FLAGS, AGGREGATE_VARIABLES = told("aggregate")
