"""Replicas that share a port (`--reuse-port`) end one after another, and nobody is reset.

The kernel has to hand over what a closed listener leaves behind (`net.ipv4.tcp_migrate_req`). That
setting belongs to a network namespace, so the test has one of its own, and the host keeps its own.
"""

import fcntl
import os
import pathlib
import signal
import socket
import struct
import subprocess
import sys
import threading
import time
import unittest

from harness import BINARIES, PATIENCE, UPGRADE, Estate, Gateway, free_port

SETTING = pathlib.Path("/proc/sys/net/ipv4/tcp_migrate_req")
ENDS = 6
OWN = "TIDEGATE_TEST_NAMESPACE"


def bring_up_loopback():
    set_flags, up_and_running = 0x8914, 0x41
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as any_socket:
        fcntl.ioctl(any_socket, set_flags, struct.pack("16sh", b"lo", up_and_running))


class Visitors:
    """Connect, upgrade and leave, again and again, and remember what went wrong."""

    def __init__(self, port, count):
        self.port, self.stop = port, threading.Event()
        self.made, self.wrong = 0, []
        self.threads = [threading.Thread(target=self.visit) for _ in range(count)]
        for thread in self.threads:
            thread.start()

    def visit(self):
        while not self.stop.is_set():
            try:
                with socket.create_connection(("127.0.0.1", self.port), timeout=PATIENCE) as link:
                    link.sendall(UPGRADE)
                    answer = link.recv(4096)
                    if not answer.startswith(b"HTTP/1.1 101 "):
                        self.wrong.append(f"answered {answer[:60]!r}")
            except OSError as error:
                self.wrong.append(repr(error))
            self.made += 1

    def end(self):
        self.stop.set()
        for thread in self.threads:
            thread.join(PATIENCE)


@unittest.skipUnless(os.geteuid() == 0, "a network namespace needs root")
class SharedPort(unittest.TestCase):
    def test_replicas_of_one_port_end_and_no_connection_is_reset(self):
        if OWN not in os.environ:
            inside = subprocess.run(
                ["unshare", "--net", "--pid", "--fork", "--kill-child", "--mount-proc", sys.executable, "-m", "unittest",
                 f"test_reuse_port.{type(self).__name__}.{self._testMethodName}"],
                env=os.environ | {OWN: "1"}, timeout=300, check=False,
            )
            self.assertEqual(inside.returncode, 0)
            return
        bring_up_loopback()
        self.assertEqual(SETTING.read_text().strip(), "0", "a new namespace has the kernel's default")
        estate = Estate()
        self.addCleanup(estate.close)
        listen = f"127.0.0.1:{free_port()}"
        start = lambda: Gateway(estate, drain="1s", listen=listen, flags=["--reuse-port"])

        # Said where somebody looks: the log of the replica.
        warned = subprocess.run(
            ["timeout", "--signal=TERM", "10", BINARIES / "gateway", "serve", "--estate", estate.dir, "--listen", listen,
             "--admin", "127.0.0.1:0", "--reuse-port", "--drain-delay", "0s", "--drain", "0s"],
            capture_output=True, text=True, timeout=PATIENCE, check=False,
        )
        self.assertIn("net.ipv4.tcp_migrate_req is 0", warned.stderr + warned.stdout)

        replicas = [start(), start()]
        self.addCleanup(lambda: [replica.close() for replica in replicas])
        self.assertGreater(self.queued_at_one_that_is_killed(replicas, start), 0, "the kernel hands over unasked")
        SETTING.write_text("1")
        self.assertEqual(self.queued_at_one_that_is_killed(replicas, start), 0)

        visitors = Visitors(int(listen.rsplit(":", 1)[1]), 8)
        self.addCleanup(visitors.end)
        for _ in range(ENDS):
            time.sleep(0.3)
            leaving = replicas.pop(0)
            leaving.close()
            replicas.append(start())
        visitors.end()
        print(f"{visitors.made} connections over {ENDS} ends: {len(visitors.wrong)} went wrong", flush=True)
        self.assertEqual(visitors.wrong[:5], [])
        self.assertGreater(visitors.made, 100)

    def queued_at_one_that_is_killed(self, replicas, start):
        """How many of 64 connections broke whose replica was killed before it accepted them."""
        killed = replicas.pop(0)
        self.addCleanup(killed.process.kill)
        os.kill(killed.process.pid, signal.SIGSTOP)
        os.waitpid(killed.process.pid, os.WUNTRACED)  # until then it may still accept some
        port = int(killed.opamp.rsplit(":", 1)[1])
        links = [socket.create_connection(("127.0.0.1", port), timeout=PATIENCE) for _ in range(64)]
        for link in links:
            link.sendall(UPGRADE)
        killed.process.kill()
        killed.process.wait(PATIENCE)
        killed.process.stdout.close()
        broken = 0
        for link in links:
            with link:
                try:
                    broken += not link.recv(4096).startswith(b"HTTP/1.1 101 ")
                except (ConnectionResetError, TimeoutError):
                    broken += 1
        replicas.append(start())
        return broken


if __name__ == "__main__":
    unittest.main(verbosity=2)
