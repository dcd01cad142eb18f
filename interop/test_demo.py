"""deploy/demo on release binaries: the demonstration in short, and some kills."""

import pathlib
import re
import signal
import subprocess
import tempfile
import time
import unittest

from harness import BINARIES, PATIENCE, ROOT

DEMO = ROOT / "deploy" / "demo"


def processes_in(folder):
    """Command lines of running processes that name this folder."""
    found = []
    for file in pathlib.Path("/proc").glob("[0-9]*/cmdline"):
        try:
            line = file.read_bytes().replace(b"\0", b" ").decode(errors="replace")
        except OSError:
            continue  # it ended meanwhile
        if str(folder) in line and not re.search(r"deploy/demo/(run|chaos) ", line):
            found.append(line)
    return found


class Demo(unittest.TestCase):
    def setUp(self):
        scratch = tempfile.TemporaryDirectory(prefix="interop-demo-")
        self.addCleanup(scratch.cleanup)
        self.keep = pathlib.Path(scratch.name) / "kept"

    def command(self, program, *flags):
        return [DEMO / program, "--binaries", BINARIES, "--keep", self.keep, *flags]

    def play(self, program, *flags):
        done = subprocess.run(
            self.command(program, *flags), stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
            text=True, timeout=600, check=False,
        )
        self.assertEqual(done.returncode, 0, done.stdout)
        self.assertEqual(processes_in(self.keep), [])
        return done.stdout

    def test_it_shows_an_abort_from_the_first_failure_to_the_merge_and_ends(self):
        told = self.play("run", "--short")
        order = ("uplink", "collectors", "verdict", "brake", "alert", "status page", "branch", "merge", "rehearsal", "end")
        places = [re.search(rf" s  {what} ", told) for what in order]
        self.assertNotIn(None, places, told)
        self.assertEqual([place.start() for place in places], sorted(place.start() for place in places), told)

    def test_killed_processes_lose_no_halt_and_offer_nothing_wrong(self):
        told = self.play("chaos", "--for", "45s", "--seed", "1")
        self.assertGreaterEqual(len(re.findall(r" s  kill ", told)), 2, told)
        self.assertIn("no wrong offer, no lost halt, no second branch", told)

    def test_interrupted_it_ends_what_it_started(self):
        process = subprocess.Popen(self.command("run", "--stay"), stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        self.addCleanup(process.stdout.close)
        self.addCleanup(process.kill)
        for line in process.stdout:
            if " s  aggregator " in line:
                break
        self.assertNotEqual(processes_in(self.keep), [])
        process.send_signal(signal.SIGINT)
        said, _ = process.communicate(timeout=2 * PATIENCE)
        self.assertEqual(process.returncode, 130, said)
        self.assertEqual(processes_in(self.keep), [])

    def test_killed_itself_it_leaves_nobody_behind(self):
        process = subprocess.Popen(self.command("run", "--short"), stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        self.addCleanup(process.stdout.close)
        for line in process.stdout:
            if " s  replica " in line:
                break
        process.kill()
        process.wait(PATIENCE)
        deadline = time.monotonic() + PATIENCE
        while processes_in(self.keep) and time.monotonic() < deadline:
            time.sleep(0.1)
        self.assertEqual(processes_in(self.keep), [])


if __name__ == "__main__":
    unittest.main(verbosity=2)
