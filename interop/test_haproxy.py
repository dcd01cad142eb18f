"""deploy/haproxy in front of two gateways: real traffic, and one of the gateways is told to end."""

import json
import pathlib
import re
import select
import shutil
import signal
import socket
import subprocess
import tempfile
import threading
import time
import unittest

from harness import BINARIES, PATIENCE, ROOT, UPGRADE, Estate, Gateway, free_port, until

CONFIG = ROOT / "deploy" / "haproxy" / "haproxy.cfg"
HAPROXY = shutil.which("haproxy") or "/usr/sbin/haproxy"
GOING_AWAY = (1001).to_bytes(2, "big")


def configured(gateways, folder):
    """The shipped file with addresses of this test; each is there as often as it is expected to be."""
    text = CONFIG.read_text()
    ports = {4320: free_port(), 4322: free_port()}
    for default, port in ports.items():
        assert text.count(f"bind :{default}\n") == 1
        text = text.replace(f"bind :{default}\n", f"bind 127.0.0.1:{port}\n")
    for address, gateway in zip(("192.0.2.11", "192.0.2.12"), gateways):
        server = re.compile(rf"server (\w+) {re.escape(address)}:4320$", re.M)
        admin = gateway.admin.rsplit(":", 1)[1]
        text, times = server.subn(rf"server \1 {gateway.opamp} port {admin}", text)
        assert times == 2
    # HAProxy does not start with less descriptors than it asks for, and a test machine has few.
    assert text.count("maxconn 200000\n") == 1
    text = text.replace("maxconn 200000\n", "maxconn 2000\n")
    file = folder / "haproxy.cfg"
    file.write_text(text)
    return file, ports[4320], ports[4322]


class Link:
    """A WebSocket without a client around it, so that its end is seen as it is."""

    def __init__(self, port):
        self.socket = socket.create_connection(("127.0.0.1", port), timeout=PATIENCE)
        self.socket.sendall(UPGRADE)
        self.bytes = b""
        while b"\r\n\r\n" not in self.bytes:
            read = self.socket.recv(4096)
            if not read:
                raise ConnectionError(f"ended in its handshake after {self.bytes!r}")
            self.bytes += read
        head, self.bytes = self.bytes.split(b"\r\n\r\n", 1)
        if not head.startswith(b"HTTP/1.1 101 "):
            raise ConnectionError(f"not upgraded: {head!r}")

    def told(self):
        """Whether a whole close frame with 1001 came, and nothing before it."""
        frame = self.bytes
        return frame[:1] == b"\x88" and len(frame) == 2 + frame[1] and frame[2:4] == GOING_AWAY

    def ended(self):
        """How it ended: `closed` with 1001, as a peer that can say so should; None while it lives."""
        while select.select([self.socket], [], [], 0)[0]:
            try:
                read = self.socket.recv(4096)
            except ConnectionResetError:
                return "reset"
            if not read:
                self.socket.close()
                return "closed" if self.told() else f"ended after {self.bytes!r}"
            self.bytes += read
            if self.told():
                # What a client answers: the same code, masked.
                self.socket.sendall(b"\x88\x82\0\0\0\0" + (1001).to_bytes(2, "big"))
        return None


class Haproxy(unittest.TestCase):
    def setUp(self):
        self.folder = pathlib.Path(tempfile.mkdtemp(prefix="interop-haproxy-"))
        self.addCleanup(shutil.rmtree, self.folder)
        self.estate = Estate()
        self.addCleanup(self.estate.close)
        self.gateways = [Gateway(self.estate, drain_delay="5s", drain="3s") for _ in range(2)]
        for gateway in self.gateways:
            self.addCleanup(gateway.close)
        config, self.websocket, self.polling = configured(self.gateways, self.folder)
        self.haproxy = subprocess.Popen([HAPROXY, "-db", "-f", config])
        self.addCleanup(self.haproxy.wait)
        self.addCleanup(self.haproxy.terminate)
        until(self.answers, "HAProxy sees a gateway")

    def answers(self):
        try:
            Link(self.websocket).socket.close()
            return True
        except OSError:
            return False

    def loadgen(self, *flags):
        process = subprocess.Popen(
            [BINARIES / "loadgen", "--estate", self.estate.dir, "--heartbeat", "1s", "--duration", "12s", *flags],
            stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
        )
        self.addCleanup(process.stdout.close)
        self.addCleanup(process.kill)
        return process

    def test_one_gateway_ends_and_nobody_is_reset(self):
        one, two = self.gateways
        over_websockets = self.loadgen(
            "--collectors", "100", "--endpoint", f"ws://127.0.0.1:{self.websocket}/v1/opamp",
            "--allow-lost-links", "--report", self.folder / "ws.json",
        )
        polling = self.loadgen(
            "--collectors", "50", "--endpoint", f"http://127.0.0.1:{self.polling}/v1/opamp", "--transport", "http",
            "--allow-lost-links", "--report", self.folder / "http.json",
        )
        links = [Link(self.websocket) for _ in range(20)]
        for link in links:
            self.addCleanup(link.socket.close)

        def connections(gateway, transport):
            return gateway.metric(f'tidegate_connections{{transport="{transport}"}}')

        both = lambda transport: [connections(gateway, transport) for gateway in (one, two)]
        until(lambda: sum(both("ws")) >= 120 and sum(both("http")) >= 50, "everybody is connected")
        # Least connections spreads links; a source of polls stays with one gateway.
        self.assertGreaterEqual(min(both("ws")), 40)
        self.assertEqual(sorted(both("http")), [0.0, 50.0])

        # The pollers' gateway ends, so that they have to move as well.
        leaving, staying = (one, two) if connections(one, "http") else (two, one)
        refused = []
        stop = threading.Event()

        def keep_connecting():
            while not stop.wait(0.05):
                try:
                    Link(self.websocket).socket.close()
                except OSError as error:
                    refused.append(repr(error))

        newcomers = threading.Thread(target=keep_connecting)
        newcomers.start()
        leaving.process.send_signal(signal.SIGTERM)
        ends = [None] * len(links)
        deadline = time.monotonic() + PATIENCE
        while leaving.process.poll() is None:
            self.assertLess(time.monotonic(), deadline, "the gateway does not end")
            ends = [end or link.ended() for end, link in zip(ends, links)]
            time.sleep(0.02)
        time.sleep(0.3)
        stop.set()
        newcomers.join()
        ends = [end or link.ended() for end, link in zip(ends, links)]
        self.assertEqual(leaving.process.returncode, 0)
        self.assertEqual(refused, [])
        self.assertEqual(set(ends), {"closed", None})
        self.assertGreaterEqual(ends.count("closed"), 5)

        said, _ = over_websockets.communicate(timeout=PATIENCE)
        self.assertEqual(over_websockets.returncode, 0, said)
        # A gateway does not know a poller that moved, and asks it for full state once; loadgen, which
        # cannot see that it moved, calls that unexpected. Nothing else may be wrong.
        polling.communicate(timeout=PATIENCE)
        moved = staying.metric('tidegate_full_state_requests_total{reason="moved"}')
        report = self.report("http")
        self.assertEqual(report["wrong_by_kind"], {"unexpected": moved})
        self.assertEqual((moved, report["offered_right"], report["lost"]), (50, 50, 0))
        # Each found the other gateway at its first attempt.
        for transport in ("ws", "http"):
            with self.subTest(transport=transport):
                report = self.report(transport)
                self.assertEqual(report["connect_failures"], 0, report["errors"])
                self.assertEqual(report["errors"], {})
                self.assertEqual(report["duplicates"], 0)
        self.assertGreaterEqual(staying.metric("tidegate_connects_total"), 150)

    def report(self, transport):
        return json.loads((self.folder / f"{transport}.json").read_text())


if __name__ == "__main__":
    unittest.main(verbosity=2)
