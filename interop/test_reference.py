"""The server on opamp-go that the gateway is measured against (benches/reference) answers as it must, and the
script's table shows what was found of both."""

import json
import pathlib
import re
import subprocess
import sys
import tempfile
import unittest

from harness import BINARIES, BUILT, DEMO, ROOT, Estate, Gateway

MESSAGES = 500


def saturate(endpoint, message, pid):
    run = subprocess.run(
        [
            BINARIES / "loadgen", "saturate", "--endpoint", endpoint, "--estate", DEMO, "--message", message,
            "--messages", str(MESSAGES), "--server-pid", str(pid), "-o", "json",
        ],
        capture_output=True, text=True, timeout=60,
    )
    assert run.returncode == 0, f"{run.stdout}\n{run.stderr}"
    return json.loads(run.stdout)


class Reference(unittest.TestCase):
    def start_reference(self):
        process = subprocess.Popen(
            [BUILT / "opamp-go-reference", "-estate", DEMO], stdout=subprocess.PIPE, text=True
        )
        self.addCleanup(process.stdout.close)
        self.addCleanup(process.wait)
        self.addCleanup(process.terminate)
        self.assertEqual(process.stdout.readline(), "6 Tiers\n")
        return process.stdout.readline().removeprefix("listen ").strip(), process.pid

    def test_both_answer_every_message_and_are_laid_side_by_side(self):
        estate = Estate()
        self.addCleanup(estate.close)
        gateway = Gateway(estate)
        self.addCleanup(gateway.close)
        endpoint, pid = self.start_reference()
        servers = {
            "gateway": (f"ws://{gateway.opamp}/v1/opamp", gateway.process.pid), "opamp-go": (endpoint, pid),
        }
        with tempfile.TemporaryDirectory(prefix="interop-reference-") as scratch:
            for server, (url, process) in servers.items():
                for message in ("described", "heartbeat"):
                    found = saturate(url, message, process)
                    self.assertEqual((found["answered"], found["wrong"], found["all_right"]), (MESSAGES, 0, True))
                    (pathlib.Path(scratch) / f"6.{message}.{server}.1.json").write_text(json.dumps(found))
            table = subprocess.run(
                [sys.executable, ROOT / "benches" / "reference" / "table.py", scratch],
                check=True, capture_output=True, text=True,
            ).stdout
        rows = re.findall(r"^\| 6 \| (described|heartbeat), \d+ bytes \| (.*?) \| [\d,.]+ \| [\d,.]+ \| (?:[\d.]+|-) \|$", table, re.M)
        self.assertEqual(len(rows), 8, table)

    def test_who_says_another_content_is_offered_its_own(self):
        """What keeps it quiet is the hash: another estate's collectors are told so."""
        endpoint, _ = self.start_reference()
        with tempfile.TemporaryDirectory(prefix="interop-reference-") as scratch:
            estate = Estate()
            self.addCleanup(estate.close)
            for artefact in (estate.dir / "rendered").rglob("*.yaml"):
                artefact.write_text(artefact.read_text() + "# another\n")
            run = subprocess.run(
                [BINARIES / "loadgen", "saturate", "--endpoint", endpoint, "--estate", estate.dir, "--messages", "10"],
                cwd=scratch, capture_output=True, text=True, timeout=60,
            )
        self.assertEqual(run.returncode, 1, run.stderr)
        self.assertIn("an offer that is not rendered/", run.stdout)


if __name__ == "__main__":
    unittest.main(verbosity=2)
