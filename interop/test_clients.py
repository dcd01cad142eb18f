"""Clients that nobody here wrote, against a running gateway.

Each connects with the attributes of a demo Tier, gets the artefact (bytes compared), reports
APPLIED, heartbeats, is pushed a changed artefact (WebSocket) or gets it at its next poll (HTTP),
and is never offered the same content twice.
"""

import json
import sys
import unittest

from harness import BUILT, ROOT, Client, Estate, Gateway, content_hash, until

CLIENTS = ROOT / "interop" / "clients"
GO = [BUILT / "opamp-go-client"]
PYTHON = [BUILT / "venv" / "bin" / "python", CLIENTS / "python" / "client.py"]
NODE = ["node", CLIENTS / "node" / "client.js"]

BACKEND = "teams/platform/components/backend.yaml"


class RealClients(unittest.TestCase):
    def setUp(self):
        self.estate = Estate()
        self.addCleanup(self.estate.close)
        self.gateway = Gateway(self.estate)
        self.addCleanup(self.gateway.close)

    def assert_offer(self, offer, path):
        artefact = self.estate.artefact(path)
        self.assertEqual(list(offer["files"]), [""])
        self.assertEqual(offer["files"][""]["content_type"], "text/yaml")
        self.assertEqual(offer["files"][""]["body"], artefact)
        self.assertEqual(bytes.fromhex(offer["hash"]).decode(), content_hash(artefact))

    def applied(self):
        collectors = json.loads(self.gateway.get("/api/v1/collectors"))["items"]
        return [c for c in collectors if c["status"] == "applied"]

    def walk(self, command, scheme, tier, identifying, *, heartbeat, pushed, candidate_path=None):
        path = candidate_path or f"{tier}.yaml"
        client = Client(command, f"{scheme}://{self.gateway.opamp}/v1/opamp", heartbeat, identifying)
        self.addCleanup(client.close)

        first = client.next_offer()
        self.assert_offer(first, path)
        until(self.applied, "APPLIED at the gateway")

        def beats(number):
            goal = self.gateway.metric("tidegate_messages_received_total") + number
            until(lambda: self.gateway.metric("tidegate_messages_received_total") >= goal, "heartbeats")

        if not pushed:
            beats(3)
        client.no_offer_so_far()

        # A commit that changes nothing re-delivers nothing.
        swaps = self.gateway.metric("tidegate_head_swaps_total")
        self.estate.render("abcdef0123")
        until(lambda: self.gateway.metric("tidegate_head_swaps_total") > swaps, "the new head")
        if not pushed:
            beats(3)
        client.no_offer_so_far()

        # A changed artefact arrives by itself, or with the next poll.
        received = self.gateway.metric("tidegate_messages_received_total")
        self.estate.change(BACKEND, "queue_size: 5000", "queue_size: 6000")
        self.estate.render("abcdef0124")
        second = client.next_offer()
        if pushed:
            self.assertLessEqual(
                self.gateway.metric("tidegate_messages_received_total") - received, 4,
                "pushed, not polled: the collector spoke only to acknowledge",
            )
        self.assertNotEqual(second["hash"], first["hash"])
        self.assert_offer(second, path)
        until(self.applied, "APPLIED for the second offer")
        if not pushed:
            beats(3)
        client.no_offer_so_far()

    def test_opamp_go_over_websocket(self):
        self.walk(GO, "ws", "data-flow/gateway",
                  ["service.name=otelcol-gateway", "deployment.environment.name=production"],
                  heartbeat="30s", pushed=True)

    def test_opamp_go_over_http(self):
        self.walk(GO, "http", "storefront/edge", ["service.name=otelcol-edge"], heartbeat="200ms", pushed=False)

    def test_opamp_go_over_http_with_gzip(self):
        self.walk([*GO, "--compress"], "http", "storefront/edge", ["service.name=otelcol-edge"],
                  heartbeat="200ms", pushed=False)

    def test_opamp_go_member_of_the_cohort_gets_the_candidate(self):
        self.walk(GO, "ws", "data-flow/kafka-bridge",
                  ["service.name=otelcol-kafka-bridge", "host.name=bridge-a1"],
                  heartbeat="30s", pushed=True, candidate_path="data-flow/kafka-bridge@next.yaml")

    def test_python_over_http(self):
        self.walk(PYTHON, "http", "data-flow/kafka-bridge", ["service.name=otelcol-kafka-bridge"],
                  heartbeat="0.3", pushed=False)

    def test_node_over_http(self):
        self.walk(NODE, "http", "data-flow/gateway-staging",
                  ["service.name=otelcol-gateway", "deployment.environment.name=staging"],
                  heartbeat="0.3", pushed=False)


if __name__ == "__main__":
    unittest.main(argv=sys.argv, verbosity=2)
