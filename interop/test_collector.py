"""What `render` wrote for the demo estate, judged by a real collector."""

import os
import subprocess
import unittest

from harness import BUILT, DEMO

# An artefact is a whole configuration for a collector that a Supervisor runs.
ARTEFACTS = sorted(
    path
    for path in (DEMO / "rendered").rglob("*.yaml")
    if not path.name.endswith(".supervisor.yaml") and path.parent.name != "_estate"
)


class RealCollector(unittest.TestCase):
    def test_accepts_every_artefact_of_the_demo_estate(self):
        self.assertGreaterEqual(len(ARTEFACTS), 7)
        for artefact in ARTEFACTS:
            with self.subTest(artefact=artefact.relative_to(DEMO).as_posix()):
                run = subprocess.run(
                    [BUILT / "collector", "validate", "--config", artefact],
                    env={**os.environ, "TELECRAFT_NODE_NAME": "node-1", "OTELCOL_STATE_DIR": "/tmp"},
                    capture_output=True,
                    text=True,
                )
                self.assertEqual(run.returncode, 0, run.stderr)

    def test_refuses_what_is_broken(self):
        broken = subprocess.run(
            [BUILT / "collector", "validate", "--config", DEMO / "teams.yaml"], capture_output=True, text=True
        )
        self.assertNotEqual(broken.returncode, 0)


if __name__ == "__main__":
    unittest.main(verbosity=2)
