"""deploy/systemd: the unit is valid where systemd can say so, and its variables are the gateway's."""

import pathlib
import re
import shutil
import subprocess
import tempfile
import unittest

from flags import VARIABLES
from harness import BINARIES, ROOT

FOLDER = ROOT / "deploy" / "systemd"
UNIT = (FOLDER / "tidegate.service").read_text()


def values(key):
    return re.findall(rf"^{key}=(.*)$", UNIT, re.M)


class Systemd(unittest.TestCase):
    def analyze(self, *arguments):
        if not shutil.which("systemd-analyze"):
            self.skipTest("no systemd-analyze here")
        with tempfile.TemporaryDirectory() as folder:
            unit = pathlib.Path(folder) / "tidegate.service"
            unit.write_text(UNIT.replace("/usr/bin/gateway", str(BINARIES / "gateway")))
            return subprocess.run(
                ["systemd-analyze", *arguments, unit], capture_output=True, text=True, timeout=60
            )

    def test_systemd_finds_no_fault(self):
        run = self.analyze("verify")
        self.assertEqual((run.returncode, run.stdout + run.stderr), (0, ""))

    def test_what_is_left_open_is_what_a_server_needs(self):
        # Of 100; 20 is systemd's "OK", and a unit without hardening has 96.
        run = self.analyze("security", "--offline=true", "--threshold=15")
        self.assertEqual(run.returncode, 0, run.stdout)

    def test_variables_are_those_of_the_gateway(self):
        named = re.findall(r"^#?(TIDEGATE_\w+)=", (FOLDER / "tidegate.env").read_text(), re.M)
        self.assertGreater(len(named), 8)
        self.assertLessEqual(set(named), VARIABLES)

    def test_stopping_leaves_time_to_drain(self):
        help_text = subprocess.run(
            [BINARIES / "gateway", "serve", "--help"], check=True, capture_output=True, text=True
        ).stdout
        default = lambda flag: int(re.search(rf"--{flag} <.*?\[default: (\d+)s\]", help_text, re.S).group(1))
        self.assertGreaterEqual(int(values("TimeoutStopSec")[0]), default("drain-delay") + default("drain") + 10)
        # Exit 2 is what wrong flags give.
        run = subprocess.run([BINARIES / "gateway", "serve"], capture_output=True)
        self.assertEqual([str(run.returncode)], values("RestartPreventExitStatus"))


if __name__ == "__main__":
    unittest.main(verbosity=2)
