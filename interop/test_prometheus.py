"""The recording rules and alerts of deploy/prometheus, judged by `promtool` and against the names
that gateways export."""

import re
import subprocess
import unittest

import yaml

import promql
from harness import BINARIES, ROOT

FOLDER = ROOT / "deploy" / "prometheus"
RUNBOOKS = ROOT / "docs" / "runbooks"


def load(name):
    return yaml.safe_load((FOLDER / name).read_text())


def alerts():
    return [rule for group in load("tidegate.alerts.yml")["groups"] for rule in group["rules"]]


def promtool(*arguments, cwd=FOLDER):
    run = subprocess.run(["promtool", *arguments], cwd=cwd, capture_output=True, text=True, timeout=60)
    return run.returncode, run.stdout + run.stderr


class Prometheus(unittest.TestCase):
    def test_rules_and_the_scrape_are_valid(self):
        code, said = promtool("check", "config", "scrape.yml")
        self.assertEqual(code, 0, said)

    def test_alerts_fire_when_they_should_and_not_else(self):
        cases = sorted(path.name for path in (FOLDER / "tests").glob("*.yml"))
        self.assertEqual(len(cases), 4)
        code, said = promtool("test", "rules", *cases, cwd=FOLDER / "tests")
        self.assertEqual(code, 0, said)

    def test_every_alert_and_severity_is_shown_to_fire(self):
        expected = set()
        for path in (FOLDER / "tests").glob("*.yml"):
            for case in yaml.safe_load(path.read_text())["tests"]:
                for query in case.get("promql_expr_test", ()):
                    for sample in query["exp_samples"]:
                        name = re.search(r'alertname="(\w+)"', sample["labels"])
                        severity = re.search(r'severity="(\w+)"', sample["labels"])
                        if name and severity:
                            expected.add((name.group(1), severity.group(1)))
                for query in case.get("alert_rule_test", ()):
                    for alert in query["exp_alerts"]:
                        expected.add((query["alertname"], alert["exp_labels"]["severity"]))
        self.assertEqual(expected, {(rule["alert"], rule["labels"]["severity"]) for rule in alerts()})

    def test_every_name_is_one_that_gateways_export(self):
        recorded = promql.recorded(load("tidegate.rules.yml"))
        for name in ("tidegate.rules.yml", "tidegate.alerts.yml"):
            for group in load(name)["groups"]:
                for rule in group["rules"]:
                    with self.subTest(rule=rule.get("record") or rule["alert"]):
                        self.assertEqual(promql.faults(rule["expr"], recorded), [])

    def test_what_does_not_exist_yet_is_listed_only_as_long_as_it_does_not(self):
        self.assertEqual(sorted(set(promql.NOT_YET) & set(promql.documented())), [])

    def test_a_name_that_nobody_exports_is_a_fault(self):
        for wrong in (
            "tidegate_conections",
            'tidegate_connections{tranport="ws"}',
            "sum by (tier) (tidegate_connections)",
            "fleet:tidegate_nothing:sum",
        ):
            with self.subTest(expression=wrong):
                self.assertNotEqual(promql.faults(wrong, promql.recorded(load("tidegate.rules.yml"))), [])

    def test_alerts_say_what_to_do(self):
        for rule in alerts():
            with self.subTest(alert=rule["alert"]):
                self.assertRegex(rule["alert"], r"^([A-Z][a-z]+)+$")
                self.assertIn(rule["labels"]["severity"], ("info", "warning", "critical"))
                self.assertRegex(rule["for"], r"^\d+[mh]$")
                notes = rule["annotations"]
                self.assertEqual(notes["runbook_url"], f"docs/runbooks/{rule['alert']}.md")
                self.assertTrue((ROOT / notes["runbook_url"]).is_file())
                # A template may only name labels that the expression keeps.
                named = set(re.findall(r"\$labels\.(\w+)", notes["summary"] + notes["description"]))
                recorded = promql.recorded(load("tidegate.rules.yml"))
                kept = set().union(*(recorded.get(metric, set()) for metric in promql.metrics_in(rule["expr"])))
                kept |= set(re.findall(r"\w+", " ".join(re.findall(r"by \(([^)]*)\)", rule["expr"]))))
                kept |= set() if "by (" in rule["expr"] or kept else {"instance"}
                self.assertLessEqual(named, kept)

    def test_every_runbook_belongs_to_an_alert_and_has_its_four_parts(self):
        pages = {path.stem: path.read_text() for path in RUNBOOKS.glob("*.md") if path.stem != "README"}
        self.assertEqual(set(pages), {rule["alert"] for rule in alerts()})
        routes = re.findall(r'route\("([^"]+)"', (ROOT / "gateway/src/admin/mod.rs").read_text())
        commands = subprocess.run(
            [BINARIES / "gateway", "rollout", "--help"], check=True, capture_output=True, text=True
        ).stdout
        index = (RUNBOOKS / "README.md").read_text()
        for name, page in pages.items():
            with self.subTest(runbook=name):
                self.assertTrue(page.startswith(f"# {name}\n"))
                self.assertEqual(
                    re.findall(r"^## (.*)$", page, re.M),
                    ["What it means", "What to look at", "What to do", "When it is no emergency"],
                )
                self.assertIn(f"({name}.md)", index)
                for path in re.findall(r"(?:127\.0\.0\.1:4321|REPLICA)(/[\w/]*)", page):
                    self.assertIn(path.replace("team/name", "{team}/{name}"), routes)
                for command in re.findall(r"gateway rollout (\w+)", page):
                    self.assertIn(f"  {command} ", commands)
                for query in re.findall(r"^```promql\n(.*?)^```", page, re.M | re.S):
                    for line in query.splitlines():
                        self.assertEqual(promql.faults(line, promql.recorded(load("tidegate.rules.yml"))), [])


if __name__ == "__main__":
    unittest.main(verbosity=2)
