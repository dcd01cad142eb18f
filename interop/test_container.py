"""deploy/container without an engine: the root file systems are laid out as folders, and the gateway
runs in them under chroot, as the images' user."""

import hashlib
import os
import pathlib
import re
import shutil
import signal
import stat
import subprocess
import tempfile
import tomllib
import unittest
import urllib.request

from harness import BINARIES, DEMO, PATIENCE, ROOT

FOLDER = ROOT / "deploy" / "container"
FILE = (FOLDER / "Containerfile").read_text()
USER = 65532
ENVIRONMENT = {"HOME": "/var/lib/tidegate", "PATH": "/usr/bin"}
CHROOT = shutil.which("chroot") or "/usr/sbin/chroot"


def lay_out(kind, root):
    subprocess.run([FOLDER / "rootfs", kind, BINARIES / "gateway", root], check=True, timeout=60)


def files(root):
    return {path.relative_to(root).as_posix() for path in root.rglob("*") if not path.is_dir() or path.is_symlink()}


def digest(root):
    """Of what an image layer holds of a folder: names, kinds, modes, times, contents."""
    found = hashlib.sha256()
    for path in sorted(root.rglob("*")):
        kept = path.lstat()
        found.update(f"{path.relative_to(root)} {kept.st_mode:o} {kept.st_mtime_ns}".encode())
        if path.is_symlink():
            found.update(os.readlink(path).encode())
        elif path.is_file():
            found.update(path.read_bytes())
    return found.hexdigest()


class Container(unittest.TestCase):
    def setUp(self):
        self.folder = pathlib.Path(tempfile.mkdtemp(prefix="interop-container-"))
        self.addCleanup(shutil.rmtree, self.folder)
        # Its user has to get through.
        self.folder.chmod(0o755)

    def root(self, kind):
        root = self.folder / kind
        lay_out(kind, root)
        # What an engine adds.
        for name, minor in (("null", 3), ("zero", 5), ("full", 7), ("random", 8), ("urandom", 9)):
            device = root / "dev" / name
            os.mknod(device, 0o666 | stat.S_IFCHR, os.makedev(1, minor))
            device.chmod(0o666)
        return root

    def run_in(self, root, *arguments):
        """Runs until it listens, asks it, and ends it; what it said about its head."""
        process = subprocess.Popen(
            [
                CHROOT, f"--userspec={USER}:{USER}", root, "/usr/bin/gateway", *arguments,
                "--listen", "127.0.0.1:0", "--admin", "127.0.0.1:0", "--drain-delay", "0s", "--drain", "1s",
            ],
            stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=ENVIRONMENT,
        )
        try:
            lines = []
            for line in process.stdout:
                lines.append(line)
                if line.startswith("metrics"):
                    break
            address = re.search(r"^admin\s+(http://\S+?)/?$", "".join(lines), re.M)
            self.assertTrue(address, f"{lines} {process.stderr.read() if process.poll() is not None else ''}")
            with urllib.request.urlopen(f"{address.group(1)}/readyz", timeout=PATIENCE) as answer:
                self.assertEqual(answer.status, 200)
            status = pathlib.Path(f"/proc/{process.pid}/status").read_text()
            self.assertRegex(status, rf"Uid:\t{USER}\t")
            self.assertRegex(status, r"CapEff:\t0+\n")
            return "".join(lines)
        finally:
            process.send_signal(signal.SIGTERM)
            process.communicate(timeout=PATIENCE)
            self.assertEqual(process.returncode, 0)

    def test_the_same_inputs_give_the_same_files(self):
        for kind in ("edge", "full"):
            with self.subTest(kind=kind):
                digests = set()
                for time in range(2):
                    root = self.folder / f"{kind}-{time}"
                    lay_out(kind, root)
                    digests.add(digest(root))
                self.assertEqual(len(digests), 1)

    def test_edge_serves_a_snapshot_and_has_nothing_else_in_it(self):
        root = self.root("edge")
        programs = {name for name in files(root) if name.startswith("usr/bin/")}
        self.assertEqual(programs, {"usr/bin/gateway"})
        self.assertLessEqual(len([name for name in files(root) if ".so" in name]), 6)
        subprocess.run(
            [BINARIES / "render", "snapshot", "--estate", DEMO, "--out", root / "estate" / "estate.snapshot"],
            check=True, stdout=subprocess.DEVNULL,
        )
        self.assertIn("Tiers: 6", self.run_in(root, "serve", "--snapshot", "/estate/estate.snapshot"))

    def test_full_serves_a_git_remote(self):
        root = self.root("full")
        work = self.folder / "work"
        shutil.copytree(DEMO, work)
        git = ["git", "-c", "user.name=test", "-c", "user.email=test@example.org", "-C", work]
        subprocess.run([*git, "init", "--quiet", "--initial-branch=main"], check=True)
        subprocess.run([*git, "add", "--all"], check=True)
        subprocess.run([*git, "commit", "--quiet", "--message=estate"], check=True)
        remote = root / "srv" / "estate.git"
        subprocess.run(["git", "clone", "--quiet", "--bare", work, remote], check=True)
        for path in [remote, *remote.rglob("*")]:
            os.chown(path, USER, USER)
        commit = subprocess.run([*git, "rev-parse", "HEAD"], check=True, capture_output=True, text=True).stdout
        said = self.run_in(root, "serve", "--repo", "file:///srv/estate.git", "--ref", "main")
        self.assertIn(commit[:12], said)

    def test_git_in_full_has_its_helpers(self):
        root = self.root("full")
        # A port that nobody listens on: reached by the helper, and refused.
        for url, said in (("https://127.0.0.1:1/x.git", "127.0.0.1"), ("ssh://git@127.0.0.1:1/x.git", "port 1")):
            with self.subTest(url=url):
                run = subprocess.run(
                    [CHROOT, f"--userspec={USER}:{USER}", root, "/usr/bin/git", "ls-remote", url],
                    capture_output=True, text=True, timeout=PATIENCE,
                    env={**ENVIRONMENT, "GIT_SSH_COMMAND": "ssh -o BatchMode=yes"},
                )
                self.assertNotEqual(run.returncode, 0)
                self.assertIn(said, run.stderr)
                self.assertRegex(run.stderr, "Connection refused|Failed to connect|Couldn't connect")

    def test_the_containerfile_copies_what_is_laid_out_here(self):
        wanted = tomllib.loads((ROOT / "Cargo.toml").read_text())["workspace"]["package"]["rust-version"]
        self.assertIn(f"ARG RUST_IMAGE=rust:{wanted}-", FILE)
        self.assertIn("cargo build --locked --release --bin gateway\n", FILE)
        for kind in ("edge", "full"):
            with self.subTest(kind=kind):
                self.assertIn(f"deploy/container/rootfs {kind} target/release/gateway /{kind}", FILE)
                stage = FILE.split(f"FROM scratch AS {kind}\n")[1].split("\nFROM")[0]
                self.assertIn(f"COPY --from=build /{kind} /\n", stage)
                self.assertIn(f"USER {USER}:{USER}\n", stage)
                self.assertIn('ENTRYPOINT ["/usr/bin/gateway"]\n', stage)
                self.assertNotRegex(stage, r"(?m)^(RUN|ADD)")
        # What the tests run with is what the image says.
        self.assertIn("ENV " + " ".join(f"{name}={value}" for name, value in ENVIRONMENT.items()), FILE)
        self.assertTrue(os.access(FOLDER / "rootfs", os.X_OK))


if __name__ == "__main__":
    unittest.main(verbosity=2)
