"""Every command in the documentation, run as it is printed.

A page's ```sh blocks are one session, in a fresh copy of the repository's fixtures. A `gateway serve` or
`gateway aggregate` stays in the background until its page ends; every other command must exit with 0, or with N where its
line ends in `# exits N`. `cargo run --release --bin X --` is the built binary X, `cargo test` is
what CI runs anyway.
"""

import os
import pathlib
import re
import shutil
import socket
import subprocess
import tempfile
import unittest

from harness import BINARIES, ROOT

PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
ELSEWHERE = ("cargo test", "cargo bench", ".ci/run", "interop/run", "deploy/demo/")


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def commands(page: pathlib.Path):
    for block in re.findall(r"^```sh\n(.*?)^```", page.read_text(), re.M | re.S):
        joined = block.replace("\\\n", " ")
        for line in joined.splitlines():
            if line.strip() and not line.startswith("#"):
                yield line


class Documentation(unittest.TestCase):
    def run_page(self, page):
        with tempfile.TemporaryDirectory(prefix="interop-docs-") as scratch:
            work = pathlib.Path(scratch) / "repository"
            work.mkdir()
            shutil.copytree(ROOT / "fixtures" / "estates" / "demo", work / "fixtures" / "estates" / "demo")
            for folder in (pathlib.Path("loadgen/plans"), pathlib.Path("fixtures/scenarios")):
                if (ROOT / folder).exists():
                    shutil.copytree(ROOT / folder, work / folder)
            background = []
            # The pages show the default ports; the test takes free ones.
            ports = {port: free_port() for port in (4320, 4321, 4322, 4330, 4331, 4332, 4333, 4341)}
            try:
                for line in commands(page):
                    if line.startswith(ELSEWHERE):
                        continue
                    expected = int(found.group(1)) if (found := re.search(r"# exits (\d+)$", line)) else 0
                    command = re.sub(r"cargo run --release --bin ([\w-]+) --", lambda m: str(BINARIES / m.group(1)), line)
                    for default, free in ports.items():
                        command = command.replace(f"127.0.0.1:{default}", f"127.0.0.1:{free}")
                    with self.subTest(command=line):
                        role = re.search(r"gateway (?:-- )?(serve|aggregate)\b", line)
                        if role and expected == 0:
                            background.append(self.serve(self.placed(command, role.group(1), ports), work))
                            continue
                        run = subprocess.run(
                            ["bash", "-euo", "pipefail", "-c", command],
                            cwd=work, capture_output=True, text=True, timeout=180, stdin=subprocess.DEVNULL,
                            env=os.environ | {"TIDEGATE_ADMIN_URL": f"http://127.0.0.1:{ports[4321]}"},
                        )
                        self.assertEqual(run.returncode, expected, f"{run.stdout}\n{run.stderr}")
            finally:
                for process in background:
                    process.terminate()
                for process in background:
                    process.communicate(timeout=30)

    def placed(self, command, role, ports):
        """The command on free ports, and in haste to end."""
        defaults = {"--admin": 4321} | ({"--listen": 4320} if role == "serve" else {"--listen-uplink": 4322})
        for flag, port in defaults.items():
            if not re.search(rf"{flag}[ =]", command):
                command += f" {flag} 127.0.0.1:{ports[port]}"
        return command + (" --drain-delay 0s --drain 1s" if role == "serve" else "")

    def serve(self, command, work):
        process = subprocess.Popen(
            ["bash", "-c", f"exec {command}"],
            cwd=work, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
        )
        for line in process.stdout:
            if line.startswith("metrics"):
                return process
        self.fail(f"{command} ended: {process.stderr.read()}")

    def test_every_command_of_every_page(self):
        seen = 0
        for page in PAGES:
            with self.subTest(page=page.relative_to(ROOT).as_posix()):
                seen += sum(1 for _ in commands(page))
                self.run_page(page)
        self.assertGreater(seen, 15)


if __name__ == "__main__":
    unittest.main(verbosity=2)
