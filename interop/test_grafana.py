"""The dashboards of deploy/grafana: generated, valid, and of metrics that exist."""

import json
import pathlib
import re
import subprocess
import sys
import tempfile
import unittest

import yaml

import promql
from harness import ROOT

FOLDER = ROOT / "deploy" / "grafana"
RULES = ROOT / "deploy" / "prometheus" / "tidegate.rules.yml"


def dashboards():
    return {path.stem: json.loads(path.read_text()) for path in sorted(FOLDER.glob("*.json"))}


def filled(expression: str) -> str:
    """With the variables that Grafana fills in."""
    return expression.replace("$__rate_interval", "1m").replace("$fleet", ".*").replace("$rollout", ".*")


def queries():
    """(dashboard, what asks, expression) of every panel and annotation."""
    for name, dashboard in dashboards().items():
        for panel in dashboard["panels"]:
            for target in panel["targets"]:
                yield name, panel["title"], filled(target["expr"])
        for annotation in dashboard["annotations"]["list"]:
            yield name, annotation["name"], filled(annotation["expr"])


class Grafana(unittest.TestCase):
    def test_generating_gives_what_is_committed(self):
        with tempfile.TemporaryDirectory() as out:
            subprocess.run([sys.executable, "-B", FOLDER / "generate.py", out], check=True)
            made = {path.name: path.read_bytes() for path in pathlib.Path(out).iterdir()}
        self.assertEqual(made, {path.name: path.read_bytes() for path in FOLDER.glob("*.json")})
        self.assertEqual(set(made), {"rollouts.json", "fleet.json", "gateway.json"})

    def test_every_name_is_one_that_gateways_export(self):
        recorded = promql.recorded(yaml.safe_load(RULES.read_text()))
        for dashboard, panel, expression in queries():
            with self.subTest(dashboard=dashboard, panel=panel):
                self.assertEqual(promql.faults(expression, recorded), [])

    def test_legends_and_variables_name_labels_that_their_query_keeps(self):
        for name, dashboard in dashboards().items():
            variables = {variable["name"] for variable in dashboard["templating"]["list"]}
            for panel in dashboard["panels"]:
                for target in panel["targets"]:
                    with self.subTest(dashboard=name, panel=panel["title"]):
                        kept = set(re.findall(r"\w+", " ".join(re.findall(r"by \(([^)]*)\)", target["expr"]))))
                        for metric in promql.metrics_in(target["expr"]):
                            kept |= promql.recorded(yaml.safe_load(RULES.read_text())).get(metric, set())
                        self.assertLessEqual(set(re.findall(r"{{(\w+)}}", target["legendFormat"])), kept)
                        used = set(re.findall(r"\$(\w+)", target["expr"])) - {"__rate_interval"}
                        self.assertLessEqual(used, variables)

    def test_prometheus_parses_every_query(self):
        rules = [{"record": f"panel:{number}", "expr": query[2]} for number, query in enumerate(queries())]
        self.assertGreater(len(rules), 60)
        with tempfile.NamedTemporaryFile("w", suffix=".yml") as file:
            # JSON is YAML.
            json.dump({"groups": [{"name": "panels", "rules": rules}]}, file)
            file.flush()
            run = subprocess.run(["promtool", "check", "rules", file.name], capture_output=True, text=True, timeout=60)
        self.assertEqual(run.returncode, 0, run.stdout + run.stderr)

    def test_every_metric_is_shown_somewhere(self):
        rules = [rule["expr"] for group in yaml.safe_load(RULES.read_text())["groups"] for rule in group["rules"]]
        known = promql.documented()
        shown = set()
        for expression in [*rules, *(query[2] for query in queries())]:
            shown |= {promql.base(metric, known) for metric in promql.metrics_in(expression)}
        self.assertEqual(sorted(set(known) - shown), [])

    def test_panels_do_not_overlap_and_say_what_they_show(self):
        for name, dashboard in dashboards().items():
            taken = set()
            for panel in dashboard["panels"]:
                with self.subTest(dashboard=name, panel=panel["title"]):
                    self.assertTrue(panel["description"].endswith("."))
                    at = panel["gridPos"]
                    cells = {
                        (x, y)
                        for x in range(at["x"], at["x"] + at["w"])
                        for y in range(at["y"], at["y"] + at["h"])
                    }
                    self.assertLessEqual(at["x"] + at["w"], 24)
                    self.assertFalse(cells & taken)
                    taken |= cells


if __name__ == "__main__":
    unittest.main(verbosity=2)
