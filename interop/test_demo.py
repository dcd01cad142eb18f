"""deploy/demo on release binaries: the demonstration in short, and some kills."""

import importlib.machinery
import importlib.util
import pathlib
import re
import signal
import subprocess
import sys
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


def chaos():
    """deploy/demo/chaos as a module."""
    sys.path.insert(0, str(DEMO))
    loader = importlib.machinery.SourceFileLoader("chaos", str(DEMO / "chaos"))
    module = importlib.util.module_from_spec(importlib.util.spec_from_loader("chaos", loader))
    loader.exec_module(module)
    return module


class Reported:
    """A stack of which only what it reports is there."""

    def __init__(self):
        self.status, self.failed, self.braked, self.tips = 200, ["a"], True, {"abort-1": "1"}

    def report(self):
        members = [{"condition": "failed", "label": label} for label in self.failed]
        return self.status, {
            "halted": members, "braked_since_ms": 1 if self.braked else None, "tally": {"stages": [{"seen": 20}]},
            "verdict": {"kind": "abort", "why": "2 of 20"},
        }

    def branches(self):
        return self.tips


class Breaches(unittest.TestCase):
    """What the chaos test calls a breach, and what not."""

    def setUp(self):
        self.module = chaos()
        self.stack = Reported()
        self.watch = self.module.Watch(lambda *_: None)
        self.look()

    def look(self, whole=True, merged=False):
        self.watch.look(self.stack, whole, merged)

    def breaks(self, what, **how):
        with self.assertRaisesRegex(self.module.Trouble, what):
            self.look(**how)

    def kill_the_aggregator(self, later):
        since = min(at for at, _ in self.watch.seen.values())
        self.watch.killed_at[self.watch.generation] = since + later
        self.watch.generation += 1

    def test_a_halt_that_is_not_reported_any_more(self):
        self.stack.failed = ["b"]
        self.breaks("lost: 'a FAILED'")

    def test_a_brake_that_is_not_reported_any_more_by_the_next_process(self):
        self.kill_the_aggregator(later=5.0)
        self.stack.braked = False
        self.breaks("lost: 'the brake is on'", whole=False)

    def test_what_was_told_a_moment_before_a_kill_may_take_until_all_report_again(self):
        self.kill_the_aggregator(later=0.1)
        self.stack.failed = []
        self.look(whole=False)
        self.breaks("lost: 'a FAILED'", whole=True)

    def test_a_rollout_that_is_not_known_any_more(self):
        self.stack.status = 404
        self.look(merged=True)
        self.breaks("does not know the Rollout")

    def test_an_aggregator_that_is_away_or_has_not_judged_yet_is_none(self):
        for self.stack.status in (0, 503):
            self.look()

    def test_another_commit_another_branch_and_a_branch_that_goes(self):
        for tips, what in (
            ({"abort-1": "2"}, "was at 1, and is at 2"),
            ({"abort-1": "1", "advance-2": "3"}, "a second branch: advance-2"),
            ({}, "abort-1 is gone"),
        ):
            with self.subTest(what=what):
                self.stack.tips = tips
                self.breaks(what)

    def test_a_round_is_decided_by_its_seed(self):
        def plan(seed, number):
            scratch = tempfile.TemporaryDirectory()
            self.addCleanup(scratch.cleanup)
            given = type("Given", (), {"seed": seed, "tools": {}})()
            given.timeline = type("Timeline", (), {"say": None})()
            given.folder = type("Folder", (), {"path": pathlib.Path(scratch.name)})()
            round_ = self.module.Round(given, number)
            return round_.plan, round_.last

        self.assertEqual(plan(1, 1), plan(1, 1))
        self.assertNotEqual(plan(1, 1), plan(2, 1))
        self.assertNotEqual(plan(1, 1), plan(1, 2))


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
        process = subprocess.Popen(
            self.command("run", "--stay"),
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            # Where this suite runs in the background it ignores interrupts, and so would its children.
            preexec_fn=lambda: signal.signal(signal.SIGINT, signal.default_int_handler),
        )
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
