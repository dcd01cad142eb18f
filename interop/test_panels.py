"""A real Prometheus with the shipped rules scrapes two gateways under load: it is asked every panel's
query, and which alerts fire."""

import json
import pathlib
import re
import shutil
import subprocess
import tempfile
import unittest
import urllib.error
import urllib.parse
import urllib.request

import promql
from harness import BINARIES, PATIENCE, ROOT, Estate, Gateway, free_port, until
from test_grafana import queries

RULES = ROOT / "deploy" / "prometheus"

# Panels without data in this run, and why.
EMPTY = {
    "Age of the head": "a directory does not say when it was committed",
    "Certificate ends in": "no TLS here",
    "Early looks": "no collector here comes from a replica that is ahead",
    "Files read again": "no certificate or token files here",
    "Proposals": "nothing is proposed without --propose",
    "Store": "evidence dies with these gateways: no --store",
    "Uplink": "these gateways judge alone: no --uplink",
}


class Prometheus:
    """The shipped scrape and rules, every second instead of every 15; `sooner` alerts fire after one
    second, and a head is stale after five."""

    def __init__(self, folder, targets, sooner=()):
        for name in ("tidegate.rules.yml", "tidegate.alerts.yml", "scrape.yml"):
            text = (RULES / name).read_text()
            text = re.sub(r"interval: 15s$", "interval: 1s", text, flags=re.M)
            for alert in sooner:
                text = re.sub(rf"(alert: {alert}\n(?:(?!- alert).)*?for: )\d+[mh]", r"\g<1>1s", text, flags=re.S)
            if "HeadStale" in sooner:
                text = text.replace("timestamp_seconds > 600\n", "timestamp_seconds > 5\n")
            text = text.replace('targets: ["127.0.0.1:4321"]', f"targets: {json.dumps(targets)}")
            (folder / name).write_text(text)
        self.address = f"127.0.0.1:{free_port()}"
        self.process = subprocess.Popen(
            [
                "prometheus",
                f"--config.file={folder / 'scrape.yml'}",
                f"--storage.tsdb.path={folder / 'data'}",
                f"--web.listen-address={self.address}",
                "--log.level=error",
            ]
        )

    def get(self, path, **parameters):
        url = f"http://{self.address}{path}?{urllib.parse.urlencode(parameters)}"
        with urllib.request.urlopen(url, timeout=PATIENCE) as answer:
            return json.load(answer)["data"]

    def ask(self, query):
        return self.get("/api/v1/query", query=query)["result"]

    def firing(self):
        return {(alert["metric"]["alertname"], alert["metric"]["severity"]) for alert in self.ask('ALERTS{alertstate="firing"}')}

    def up(self):
        try:
            return len(self.ask("up == 1"))
        except OSError:
            return 0

    def close(self):
        self.process.terminate()
        self.process.wait(PATIENCE)


class Panels(unittest.TestCase):
    def setUp(self):
        self.folder = pathlib.Path(tempfile.mkdtemp(prefix="interop-panels-"))
        self.addCleanup(shutil.rmtree, self.folder)
        self.estate = Estate()
        self.addCleanup(self.estate.close)
        self.gateways = [Gateway(self.estate) for _ in range(2)]
        for gateway in self.gateways:
            self.addCleanup(self.end, gateway)

    def end(self, gateway):
        if gateway.process.returncode is None:
            gateway.close()
        else:
            gateway.process.stdout.close()

    def scrape(self, sooner=()):
        self.prometheus = Prometheus(self.folder, [gateway.admin for gateway in self.gateways], sooner)
        self.addCleanup(self.prometheus.close)
        until(lambda: self.prometheus.up() == 2, "both gateways are scraped")

    def loadgen(self, gateway, scheme, collectors, *flags):
        process = subprocess.Popen(
            [
                BINARIES / "loadgen", "--estate", self.estate.dir, "--collectors", str(collectors),
                "--endpoint", f"{scheme}://{gateway.opamp}/v1/opamp", "--heartbeat", "1s", *flags,
            ],
            stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
        )
        self.addCleanup(process.stdout.close)
        self.addCleanup(process.wait)
        self.addCleanup(process.kill)
        return process

    def provoke(self):
        """What does not happen by itself, on one gateway: each refusal once, so that it has a count."""
        gateway = self.gateways[0]
        requests = (
            # Not OpAMP.
            urllib.request.Request(
                f"http://{gateway.opamp}/v1/opamp", data=b"\xff\xff", headers={"Content-Type": "application/x-protobuf"}
            ),
            # A name that the operators' listener was not told to answer to.
            urllib.request.Request(f"http://{gateway.admin}/metrics", headers={"Host": "elsewhere.example"}),
        )
        for request in requests:
            with self.assertRaises(urllib.error.HTTPError):
                urllib.request.urlopen(request, timeout=PATIENCE)
        rollout = "teams/data-flow/rollouts/bridge-canary.yaml"
        self.estate.change(rollout, "stage: 1\n", "stage: 9\n")
        until(lambda: gateway.metric("tidegate_head_refused_total") > 0, "a broken estate is refused")
        self.estate.change(rollout, "stage: 9\n", "stage: 2\n")
        self.estate.render("0123456789ab")

    def answers(self):
        """Whether each query of metrics that exist has data."""
        missing = set(promql.NOT_YET)
        missing |= {name for name, needs in recorded_needs().items() if needs & missing}
        asked = {}
        for dashboard, panel, expression in queries():
            if not {promql.base(name, promql.documented()) for name in promql.metrics_in(expression)} & missing:
                asked[dashboard, panel, expression] = bool(self.prometheus.ask(expression))
        return asked

    def settles(self, query, value):
        until(lambda: self.prometheus.ask(query)[0]["value"][1] == value, lambda: f"{query}: {self.prometheus.ask(query)}")

    def missing(self):
        return [row for row, data in self.answers().items() if not data and row[1] not in EMPTY]

    def test_every_panel_of_existing_metrics_shows_data(self):
        self.scrape()
        until_changed = ("--expect-changes", "1", "--head-window", "5s")
        running = [
            self.loadgen(self.gateways[0], "ws", 110, *until_changed),
            self.loadgen(self.gateways[1], "http", 110, *until_changed),
        ]
        until(lambda: sum(g.metric("tidegate_connections") for g in self.gateways) >= 220, "all are connected")
        self.provoke()
        until(lambda: not self.missing(), lambda: f"data for {self.missing()}")
        answers = self.answers()
        self.assertGreater(len(answers), 40)
        self.assertEqual({panel for (_, panel, _), data in answers.items() if not data}, set(EMPTY))
        for process in running:
            self.assertIsNone(process.poll(), "loadgen ended before the panels were asked")
        rules = [rule for group in self.prometheus.get("/api/v1/rules")["groups"] for rule in group["rules"]]
        self.assertEqual([rule["name"] for rule in rules if rule["health"] != "ok"], [])
        self.assertEqual(self.prometheus.firing(), set())
        # The panels add up to what is there, once both replicas were scraped after the last change of head.
        self.settles("sum(fleet:tidegate_connections:sum)", "220")
        self.settles('max(fleet:tidegate_heads:count{fleet="main"})', "1")

    def test_a_stale_head_and_a_replica_that_is_gone_are_alerted(self):
        self.scrape(sooner=("HeadStale", "HeadRefused", "ReplicaDown"))
        staying, ending = self.gateways
        self.loadgen(staying, "ws", 20, "--duration", "40s")
        until(lambda: staying.metric("tidegate_connections") >= 20, "all are connected")
        self.assertEqual(self.prometheus.firing(), set())

        ending.process.kill()
        ending.process.wait(PATIENCE)
        until(lambda: self.prometheus.firing() == {("ReplicaDown", "warning")}, lambda: f"{self.prometheus.firing()}")

        rollout = "teams/data-flow/rollouts/bridge-canary.yaml"
        self.estate.change(rollout, "stage: 1\n", "stage: 9\n")
        broken = {("ReplicaDown", "warning"), ("HeadRefused", "critical"), ("HeadStale", "warning")}
        until(lambda: self.prometheus.firing() == broken, lambda: f"{self.prometheus.firing()}")
        self.estate.change(rollout, "stage: 9\n", "stage: 1\n")
        until(lambda: ("HeadStale", "warning") not in self.prometheus.firing(), "the head is fresh again")


def recorded_needs():
    """Recorded name to the metrics that it is made of."""
    text = (RULES / "tidegate.rules.yml").read_text()
    found = {}
    for name, body in re.findall(r"- record: (\S+)\n(.*?)(?=\n      - record:|\n\n|\Z)", text, re.S):
        found[name] = {promql.base(metric, promql.documented()) for metric in promql.metrics_in(body)}
    return found


if __name__ == "__main__":
    unittest.main(verbosity=2)
