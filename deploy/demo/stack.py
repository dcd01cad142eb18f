"""What the demonstration and the chaos test share: two replicas, HAProxy in front of them, an
aggregator, a Prometheus if wanted, and a rehearsal, all on 127.0.0.1. Every process that is started
here is ended here, by its id."""

import argparse
import ctypes
import http.client
import json
import os
import pathlib
import random
import re
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
import urllib.parse

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
CATALOGUE = "catalogues/catalogue-v0.158.0.json"
ROLLOUT = "data-flow/bridge-canary"
BRANCHES = f"refs/heads/tidegate/rollout/{ROLLOUT}"
REPLICAS = ("edge-1", "edge-2")
PATIENCE = 120.0  # seconds until something that must happen counts as missing
GOODBYE = 15.0  # seconds from SIGTERM to SIGKILL
PR_SET_PDEATHSIG = 1


class Missing(Exception):
    """Something that it needs is not there. Exit 2."""


class Trouble(Exception):
    """Something is not as it should be. Exit 1."""


def options(about, epilog):
    """The flags that both programs have."""
    parser = argparse.ArgumentParser(
        description=about, epilog=epilog, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    target = pathlib.Path(os.environ.get("CARGO_TARGET_DIR", ROOT / "target"))
    parser.add_argument(
        "--binaries", type=pathlib.Path, metavar="DIR",
        default=os.environ.get("TIDEGATE_DEMO_BINARIES", target / "release"),
        help="where gateway and loadgen are [env: TIDEGATE_DEMO_BINARIES] [default: %(default)s]",
    )
    parser.add_argument(
        "--keep", type=pathlib.Path, metavar="DIR",
        help="leave logs, repository, certificates and stores there; empty or new [default: removed at the end]",
    )
    return parser


def tools(binaries, *others):
    """Paths of all programs; says at once what is missing and how to get it."""
    found, missing = {}, []
    for name in ("gateway", "loadgen"):
        found[name] = pathlib.Path(binaries) / name
        if not os.access(found[name], os.X_OK):
            missing.append(f"no {name} in {binaries}: cargo build --release --bins (or name others with --binaries DIR)")
    for name in ("git", *others):
        # Debian keeps haproxy where not every user looks.
        path = shutil.which(name) or shutil.which(name, path="/usr/sbin:/usr/local/sbin")
        if path is None:
            missing.append(f"no {name}: on Debian and Ubuntu, apt-get install {name}")
        found[name] = path
    if missing:
        raise Missing("\n".join(missing))
    return found


class Folder:
    """Where everything lies: the one to keep, or a temporary one."""

    def __init__(self, keep):
        self.keep = keep
        if keep is None:
            self.path = pathlib.Path(tempfile.mkdtemp(prefix="tidegate-demo-"))
            return
        keep.mkdir(parents=True, exist_ok=True)
        if any(keep.iterdir()):
            raise Missing(f"--keep {keep}: there is something in it already; name another folder")
        self.path = keep.resolve()

    def close(self):
        if self.keep is None:
            shutil.rmtree(self.path, ignore_errors=True)


class Timeline:
    """What happened, a plain line each."""

    def __init__(self):
        self.begin = time.monotonic()

    def seconds(self):
        return time.monotonic() - self.begin

    def say(self, what, text=""):
        print(f"{self.seconds():7.1f} s  {what:<13} {text}".rstrip(), flush=True)

    def more(self, text):
        for line in text.rstrip().splitlines():
            print(f"{'':11}{'':13} {line}".rstrip(), flush=True)


class Ports:
    """Free ports of 127.0.0.1, below those that the kernel gives to outgoing connections: one that is
    free while its process is down stays free."""

    def __init__(self):
        low = 32768
        try:
            low = int(pathlib.Path("/proc/sys/net/ipv4/ip_local_port_range").read_text().split()[0])
        except OSError:
            pass  # another system: its default is no lower
        self.candidates = list(range(10_000, max(low, 11_000)))
        random.SystemRandom().shuffle(self.candidates)

    def take(self):
        """A port that is free for TCP and for UDP."""
        while self.candidates:
            port = self.candidates.pop()
            try:
                for kind in (socket.SOCK_STREAM, socket.SOCK_DGRAM):
                    with socket.socket(socket.AF_INET, kind) as probe:
                        probe.bind(("127.0.0.1", port))
                return port
            except OSError:
                continue
        raise Missing("no free port on 127.0.0.1")


def dies_with_its_parent():
    """In the child: even `kill -9` of this program leaves nobody behind (Linux)."""
    try:
        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    except (AttributeError, OSError):
        pass  # elsewhere, only a good end clears away


def environment():
    """Without what the environment says to gateways and to git."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("TIDEGATE_", "GIT_"))}
    return kept | {"GIT_CONFIG_GLOBAL": "/dev/null", "GIT_CONFIG_SYSTEM": "/dev/null"}


class Process:
    """One process, which may be killed and started again. Its output goes to a file."""

    def __init__(self, name, command, log):
        self.name, self.command, self.log = name, [str(word) for word in command], log
        self.child = None
        self.start()

    def start(self):
        with self.log.open("ab") as log:
            self.child = subprocess.Popen(
                self.command, stdin=subprocess.DEVNULL, stdout=log, stderr=log, env=environment(),
                # A Ctrl-C is for this program, which ends what it started.
                start_new_session=True, preexec_fn=dies_with_its_parent,
            )

    def ended(self):
        return self.child.poll()

    def kill(self):
        self.child.kill()
        self.child.wait()

    def tail(self, lines=15):
        return "\n".join(self.log.read_text(errors="replace").splitlines()[-lines:])


def get(port, path, accept="application/json", timeout=10.0):
    """Status and text of a GET; status 0 while nobody answers."""
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=timeout)
    try:
        connection.request("GET", path, headers={"Accept": accept})
        answer = connection.getresponse()
        return answer.status, answer.read().decode()
    except (OSError, http.client.HTTPException):
        return 0, ""
    finally:
        connection.close()


def metric(port, name):
    """The sum over a metric's series; None while it is not told."""
    status, text = get(port, "/metrics", accept="text/plain")
    pattern = re.escape(name) + r"(?:\{[^}]*\})? (\S+)$"
    values = re.findall(rf"^{pattern}", text, re.M) if status == 200 else []
    return sum(map(float, values)) if values else None


class Stack:
    """All of it. `close` ends every process that still runs."""

    def __init__(self, tools, folder, timeline, scenario):
        self.tools, self.folder, self.timeline, self.scenario = tools, folder, timeline, scenario
        self.processes = {}
        self.prometheus_port = None
        self.keep = folder / "rehearsal"
        self.repo = self.keep / "estate.git"
        ports = Ports()
        self.links = {name: ports.take() for name in REPLICAS}
        self.admins = {name: ports.take() for name in REPLICAS}
        self.aggregator_admin, self.uplink = ports.take(), ports.take()
        self.websocket, self.polling = ports.take(), ports.take()
        self.spare = ports.take

    # Starting

    def run(self, name, *command):
        self.processes[name] = Process(name, command, self.folder / f"{name}.log")

    def command(self, *command):
        """Runs a command that only answers."""
        done = subprocess.run(
            [str(word) for word in command], stdin=subprocess.DEVNULL, capture_output=True, text=True,
            env=environment(), timeout=PATIENCE, check=False,
        )
        if done.returncode != 0:
            said = (done.stderr or done.stdout).strip()
            raise Trouble(f"{' '.join(map(str, command))}: exit {done.returncode}: {said}")
        return done.stdout

    def git(self, *arguments):
        return self.command(self.tools["git"], *arguments)

    def certificates(self):
        self.certs = self.folder / "certs"
        self.command(
            self.tools["gateway"], "certs", "init", self.certs, "--aggregator", "--replica", ",".join(REPLICAS),
            "--name", "localhost,127.0.0.1",
        )

    def rehearsal(self):
        """Makes the repository, waits for the aggregator, and then plays its script."""
        self.run(
            "rehearsal", self.tools["loadgen"], "rehearse", "--scenario", self.scenario,
            "--gateway", self.tools["gateway"], "--keep", self.keep,
            "--admin-url", f"http://127.0.0.1:{self.aggregator_admin}",
            "--endpoint", f"ws://127.0.0.1:{self.websocket}/v1/opamp",
        )
        self.until("the rehearsal makes its repository", (self.repo / "refs/heads/main").exists)

    def source(self, name):
        return ("--repo", f"file://{self.repo}", "--fetch-interval", "300ms", "--cache", self.folder / f"{name}.clone")

    def shown(self, name):
        return (
            "--uplink-ca", self.certs / "uplink-ca.crt",
            "--uplink-cert", self.certs / f"{name}.crt", "--uplink-key", self.certs / f"{name}.key",
        )

    def replica(self, name):
        self.run(
            name, self.tools["gateway"], "serve", *self.source(name), "--instance-label", name,
            "--listen", f"127.0.0.1:{self.links[name]}", "--admin", f"127.0.0.1:{self.admins[name]}",
            "--uplink", f"127.0.0.1:{self.uplink}", *self.shown(f"replica-{name}"),
            "--drain-delay", "0s", "--drain", "300ms", "--workers", "1",
        )

    def aggregator(self):
        self.run(
            "aggregator", self.tools["gateway"], "aggregate", *self.source("aggregator"),
            "--listen-uplink", f"127.0.0.1:{self.uplink}", "--admin", f"127.0.0.1:{self.aggregator_admin}",
            *self.shown("aggregator"), "--store", self.folder / "evidence.redb",
            "--expect-replicas", str(len(REPLICAS)), "--evidence-grace", "1s", "--workers", "1",
            "--propose", "--catalogue", CATALOGUE, "--propose-as", "Tidegate <tidegate@example.com>",
        )

    def haproxy(self):
        """The shipped configuration, with ports of its own."""
        text = (ROOT / "deploy" / "haproxy" / "haproxy.cfg").read_text()
        replaced = [
            ("bind :4320\n", f"bind 127.0.0.1:{self.websocket}\n", 1),
            ("bind :4322\n", f"bind 127.0.0.1:{self.polling}\n", 1),
            # It does not start with less descriptors than it asks for.
            ("maxconn 200000\n", "maxconn 1000\n", 1),
        ]
        for address, name in zip(("192.0.2.11", "192.0.2.12"), REPLICAS):
            replaced.append((f"{address}:4320\n", f"127.0.0.1:{self.links[name]} port {self.admins[name]}\n", 2))
        for old, new, times in replaced:
            if text.count(old) != times:
                raise Trouble(f"deploy/haproxy/haproxy.cfg: {old!r} is there {text.count(old)} times, not {times}")
            text = text.replace(old, new)
        config = self.folder / "haproxy.cfg"
        config.write_text(text)
        self.run("haproxy", self.tools["haproxy"], "-db", "-f", config)

    def prometheus(self):
        """The shipped scrape, rules and alerts, each second, and AbortThreshold after one."""
        folder = self.folder / "prometheus"
        folder.mkdir()
        ports = (*self.admins.values(), self.aggregator_admin)
        targets = json.dumps([f"127.0.0.1:{port}" for port in ports])
        for name in ("scrape.yml", "tidegate.rules.yml", "tidegate.alerts.yml"):
            text = (ROOT / "deploy" / "prometheus" / name).read_text()
            text = re.sub(r"interval: 15s$", "interval: 1s", text, flags=re.M)
            text = re.sub(r"(alert: AbortThreshold\n(?:(?!- alert).)*?for: )\d+[mh]", r"\g<1>1s", text, flags=re.S)
            text = text.replace('targets: ["127.0.0.1:4321"]', f"targets: {targets}")
            (folder / name).write_text(text)
        self.prometheus_port = self.spare()
        self.run(
            "prometheus", self.tools["prometheus"], f"--config.file={folder / 'scrape.yml'}",
            f"--storage.tsdb.path={folder / 'data'}", f"--web.listen-address=127.0.0.1:{self.prometheus_port}",
            "--log.level=warn",
        )

    # Waiting and looking

    def check(self, away=()):
        """Nobody has ended by itself."""
        for name, process in self.processes.items():
            if name not in away and process.ended() is not None:
                raise Trouble(f"{name} has ended with {process.ended()}: {process.tail()}")

    def until(self, what, condition, patience=PATIENCE, away=()):
        """Waits for `condition()`, and gives what it gave."""
        deadline = time.monotonic() + patience
        while not (found := condition()):
            self.check(away)
            if time.monotonic() > deadline:
                raise Trouble(f"not within {patience:.0f} s: {what}")
            time.sleep(0.1)
        return found

    def ready(self, *names):
        admins = self.admins | {"aggregator": self.aggregator_admin}
        return all(get(admins[name], "/readyz")[0] == 200 for name in names)

    def uplinks_stand(self):
        """Both replicas report to the aggregator that runs now."""
        stand = all(metric(port, "tidegate_uplink_connected") == 1 for port in self.admins.values())
        return stand and (metric(self.aggregator_admin, "tidegate_uplink_replicas") or 0) >= len(REPLICAS)

    def connections(self):
        return {name: int(metric(port, "tidegate_connections") or 0) for name, port in self.admins.items()}

    def report(self):
        """Status and report of the Rollout at the aggregator; 0 while it does not answer."""
        status, text = get(self.aggregator_admin, f"/api/v1/rollouts/{ROLLOUT}")
        return status, json.loads(text) if status == 200 else None

    def branches(self):
        """Branches of the Rollout and their tips, read as files as this is asked for often."""
        found = {}
        folder = self.repo / BRANCHES
        for file in folder.iterdir() if folder.is_dir() else ():
            try:
                tip = file.read_text().strip()
            except OSError:
                continue  # deleted meanwhile
            # A lock is a branch that is being written.
            if tip and file.suffix != ".lock":
                found[file.name] = tip
        return found

    def prometheus_says(self, path, **parameters):
        status, text = get(self.prometheus_port, f"{path}?{urllib.parse.urlencode(parameters)}")
        return json.loads(text)["data"] if status == 200 else None

    def merge(self, branch):
        """What a person does at the forge."""
        desk = self.folder / "desk"
        self.git("clone", "--quiet", f"file://{self.repo}", desk)
        person = ("-c", "user.name=A Human", "-c", "user.email=human@example.com")
        whole = f"{BRANCHES.removeprefix('refs/heads/')}/{branch}"
        self.git("-C", desk, *person, "merge", "--quiet", "--no-ff", "-m", f"Merge {branch}", f"origin/{whole}")
        self.git("-C", desk, "push", "--quiet", "origin", "HEAD:main")

    # Ending

    def close(self):
        """Ends everybody who runs: SIGTERM, and SIGKILL to who does not heed it, which is told."""
        # Collectors miss no gateway, and replicas say goodbye to an aggregator that is still there.
        for names in (("rehearsal",), ("haproxy", "prometheus", *REPLICAS), ("aggregator",)):
            processes = [self.processes[name] for name in names if name in self.processes]
            running = [process for process in processes if process.ended() is None]
            for process in running:
                process.child.terminate()
            deadline = time.monotonic() + GOODBYE
            for process in running:
                try:
                    process.child.wait(max(0.1, deadline - time.monotonic()))
                except subprocess.TimeoutExpired:
                    process.kill()
                    self.timeline.say("killed", f"{process.name}, which did not end within {GOODBYE:.0f} s of SIGTERM")
        return len(self.processes)


def main(play):
    """Runs `play` so that whatever happens ends in its clean-up, and in an exit code."""
    def interrupt(number, _):
        raise KeyboardInterrupt(number)

    signal.signal(signal.SIGTERM, interrupt)
    signal.signal(signal.SIGHUP, interrupt)
    try:
        sys.exit(play())
    except Missing as missing:
        print(f"cannot start: {missing}", file=sys.stderr)
        sys.exit(2)
    except KeyboardInterrupt:
        print("interrupted; everything that was started has been ended", file=sys.stderr)
        sys.exit(130)


def undisturbed():
    """From here on, a further Ctrl-C does not stop the clean-up."""
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
