"""A real Prometheus with the shipped rules scrapes two gateways under load, and is asked every
panel's query."""

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
    "Files read again": "no certificate or token files here",
}


class Prometheus:
    """The shipped scrape and rules, every second instead of every 15."""

    def __init__(self, folder, targets):
        for name in ("tidegate.rules.yml", "tidegate.alerts.yml", "scrape.yml"):
            text = (RULES / name).read_text()
            text = re.sub(r"interval: 15s$", "interval: 1s", text, flags=re.M)
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
            self.addCleanup(gateway.close)
        self.prometheus = Prometheus(self.folder, [gateway.admin for gateway in self.gateways])
        self.addCleanup(self.prometheus.close)
        until(lambda: self.prometheus.up() == 2, "both gateways are scraped")

    def loadgen(self, gateway, scheme, collectors):
        process = subprocess.Popen(
            [
                BINARIES / "loadgen", "--estate", self.estate.dir, "--collectors", str(collectors),
                "--endpoint", f"{scheme}://{gateway.opamp}/v1/opamp", "--heartbeat", "1s", "--expect-changes", "1",
                "--head-window", "5s",
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

    def missing(self):
        return [row for row, data in self.answers().items() if not data and row[1] not in EMPTY]

    def test_every_panel_of_existing_metrics_shows_data(self):
        running = [self.loadgen(self.gateways[0], "ws", 110), self.loadgen(self.gateways[1], "http", 110)]
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
        self.assertEqual({rule["name"] for rule in rules if rule.get("state") == "firing"}, set())
        # The panels add up to what is there.
        self.assertEqual(self.prometheus.ask("sum(fleet:tidegate_connections:sum)")[0]["value"][1], "220")
        self.assertEqual(self.prometheus.ask('max(fleet:tidegate_heads:count{fleet="main"})')[0]["value"][1], "1")


def recorded_needs():
    """Recorded name to the metrics that it is made of."""
    text = (RULES / "tidegate.rules.yml").read_text()
    found = {}
    for name, body in re.findall(r"- record: (\S+)\n(.*?)(?=\n      - record:|\n\n|\Z)", text, re.S):
        found[name] = {promql.base(metric, promql.documented()) for metric in promql.metrics_in(body)}
    return found


if __name__ == "__main__":
    unittest.main(verbosity=2)
