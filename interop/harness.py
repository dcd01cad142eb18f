"""What the interop tests share: a gateway on a copy of the demo estate, and clients as processes."""

import base64
import hashlib
import json
import os
import pathlib
import queue
import re
import shutil
import socket
import subprocess
import tempfile
import threading
import time
import urllib.request

ROOT = pathlib.Path(__file__).resolve().parent.parent
BUILT = pathlib.Path(os.environ.get("INTEROP_BUILD", ROOT / "interop" / "bin"))
BINARIES = pathlib.Path(
    os.environ.get("INTEROP_BINARIES", pathlib.Path(os.environ.get("CARGO_TARGET_DIR", ROOT / "target")) / "release")
)
DEMO = ROOT / "fixtures" / "estates" / "demo"
PATIENCE = 30.0  # seconds until something that must happen counts as missing
UPGRADE = (
    b"GET /v1/opamp HTTP/1.1\r\nHost: localhost\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n"
    b"Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n"
)


def content_hash(artefact: bytes) -> str:
    """The content hash of a rendered artefact, computed here a second time: SHA-256 without the
    leading comment block and without the line that carries `telecraft.commit`."""
    lines = artefact.splitlines(keepends=True)
    while lines and lines[0].startswith(b"#"):
        lines.pop(0)
    kept = [line for line in lines if not line.strip().startswith(b"telecraft.commit:")]
    return hashlib.sha256(b"".join(kept)).hexdigest()


class Estate:
    """A copy of the demo estate that a test may change."""

    def __init__(self):
        self.dir = pathlib.Path(tempfile.mkdtemp(prefix="interop-estate-"))
        shutil.copytree(DEMO, self.dir, dirs_exist_ok=True)

    def artefact(self, path: str) -> bytes:
        return (self.dir / "rendered" / path).read_bytes()

    def render(self, commit: str):
        subprocess.run(
            [
                BINARIES / "render",
                "--estate", self.dir,
                "--catalogue", self.dir / "catalogues" / "catalogue-v0.158.0.json",
                "--commit", commit,
            ],
            check=True,
            stdout=subprocess.DEVNULL,
        )

    def change(self, path: str, old: str, new: str):
        file = self.dir / path
        text = file.read_text()
        assert old in text, f"{old!r} is not in {path}"
        file.write_text(text.replace(old, new))

    def close(self):
        shutil.rmtree(self.dir)


class Gateway:
    """`gateway serve`, on ports of its own choosing unless told which."""

    def __init__(
        self, estate: Estate, drain_delay="0s", drain="1s", listen="127.0.0.1:0", admin="127.0.0.1:0", source=None, flags=()
    ):
        self.process = subprocess.Popen(
            [
                BINARIES / "gateway", "serve",
                *(source or ["--estate", estate.dir]),
                "--listen", listen,
                "--admin", admin,
                "--fetch-interval", "200ms",
                "--drain-delay", drain_delay,
                "--drain", drain,
                *flags,
            ],
            stdout=subprocess.PIPE,
            text=True,
        )
        self.lines = []
        addresses = {}
        for line in self.process.stdout:
            self.lines.append(line)
            for what, pattern in (("opamp", r"(127\.0\.0\.1:\d+)/v1/opamp"), ("admin", r"http://(127\.0\.0\.1:\d+)(?!\d|/v1/opamp)")):
                found = re.search(pattern, line)
                if found:
                    addresses.setdefault(what, found.group(1))
            if len(addresses) == 2:
                break
        assert len(addresses) == 2, f"the gateway did not say where it listens: {self.lines}"
        self.opamp, self.admin = addresses["opamp"], addresses["admin"]
        self.reader = threading.Thread(target=self.process.stdout.read, daemon=True)
        self.reader.start()

    def get(self, path: str):
        with urllib.request.urlopen(f"http://{self.admin}{path}", timeout=PATIENCE) as answer:
            return answer.read().decode()

    def metric(self, name: str) -> float:
        """The sum over a metric's series, or one series where `name` has its labels."""
        total = 0.0
        for line in self.get("/metrics").splitlines():
            if re.match(re.escape(name) + (" " if name.endswith("}") else r"(\{| )"), line):
                total += float(line.rsplit(" ", 1)[1])
        return total

    def close(self):
        self.process.terminate()
        code = self.process.wait(PATIENCE)
        self.reader.join(PATIENCE)
        self.process.stdout.close()
        assert code == 0, f"the gateway left with {code}"


class Client:
    """One of the clients under `clients/`, speaking JSON lines."""

    def __init__(self, command, endpoint, heartbeat, identifying, attributes=()):
        command = [*map(str, command), "--endpoint", endpoint, "--heartbeat", heartbeat]
        for pair in identifying:
            command += ["--identifying", pair]
        for pair in attributes:
            command += ["--attribute", pair]
        self.process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        self.events = queue.Queue()
        self.reader = threading.Thread(target=self._read, daemon=True)
        self.reader.start()

    def _read(self):
        for line in self.process.stdout:
            self.events.put(json.loads(line))
        self.events.put({"event": "eof"})

    def next_offer(self, patience=PATIENCE):
        deadline = time.monotonic() + patience
        while True:
            event = self.events.get(timeout=max(0.001, deadline - time.monotonic()))
            assert event["event"] not in ("error", "eof", "new_uid"), event
            if event["event"] == "offer":
                for file in event["files"].values():
                    file["body"] = base64.b64decode(file["body"])
                return event

    def no_offer_so_far(self):
        """Drains what has come; fails on an offer or an error."""
        while True:
            try:
                event = self.events.get_nowait()
            except queue.Empty:
                return
            assert event["event"] not in ("offer", "error", "eof", "connect_failed", "new_uid"), event

    def close(self):
        self.process.stdin.close()
        code = self.process.wait(PATIENCE)
        self.reader.join(PATIENCE)
        self.process.stdout.close()
        assert code == 0, f"the client left with {code}"


def free_port() -> int:
    """A port of 127.0.0.1 that nobody listens on."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def until(condition, what, patience=PATIENCE):
    """Waits for `condition()`; says `what` (or what it returns) did not happen otherwise."""
    deadline = time.monotonic() + patience
    while not condition():
        assert time.monotonic() < deadline, f"{what() if callable(what) else what} did not happen in {patience} s"
        time.sleep(0.05)
