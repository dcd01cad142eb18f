"""What rules and dashboards may mention: the metrics of docs/metrics.md and their labels."""

import re

from harness import ROOT

# Set by the scrape, not by a gateway.
TARGET_LABELS = {"fleet", "instance", "job"}
# Made by Prometheus itself.
PROMETHEUS = {"up": set(), "ALERTS": {"alertname", "alertstate", "severity"}}
SUFFIXES = ("_bucket", "_sum", "_count")

# Named by alerts and panels, and not exported yet. A metric that docs/metrics.md has must leave
# this list, and a test says so.
NOT_YET: dict[str, set[str]] = {}


def documented() -> dict[str, tuple[str, set[str]]]:
    """Name to type and labels, from docs/metrics.md."""
    found = {}
    for line in (ROOT / "docs" / "metrics.md").read_text().splitlines():
        cells = [cell.strip() for cell in line.strip("|").split("|")]
        if len(cells) == 5 and cells[0].startswith("`"):
            found[cells[0].strip("`")] = (cells[1], set(re.findall(r"`(\w+)`", cells[2])))
    return found


def metrics_in(expression: str) -> set[str]:
    """Names of metrics, recorded ones (with colons) included."""
    bare = re.sub(r'"[^"]*"', '""', expression)
    return set(re.findall(r"\b(?:[a-z_]+:)?(?:tidegate|process)_[a-z_]+(?::[a-z0-9]+)?|\bup\b|\bALERTS\b", bare))


def base(metric: str, known: dict) -> str:
    """Without the suffix of a histogram's series."""
    for suffix in SUFFIXES:
        stem = metric.removesuffix(suffix)
        if stem != metric and known.get(stem, ("", set()))[0] == "histogram":
            return stem
    if metric.removesuffix("_bucket") in NOT_YET:
        return metric.removesuffix("_bucket")
    return metric


def faults(expression: str, recorded: dict[str, set[str]]) -> list[str]:
    """What is wrong with the names in an expression; `recorded` maps recorded names to labels."""
    known = documented()
    wrong = []

    def labels_of(metric):
        name = base(metric, known)
        extra = {"le"} if metric.endswith("_bucket") else set()
        if name in known:
            return known[name][1] | extra | TARGET_LABELS
        for table in (recorded, NOT_YET, PROMETHEUS):
            if name in table:
                return table[name] | extra | TARGET_LABELS
        return None

    everything = set(TARGET_LABELS)
    for metric in sorted(metrics_in(expression)):
        labels = labels_of(metric)
        if labels is None:
            wrong.append(f"{metric} is not in docs/metrics.md")
        else:
            everything |= labels
    for metric, matchers in re.findall(r"([a-zA-Z_:][\w:]*)\{([^}]*)\}", expression):
        for label in re.findall(r"(\w+)\s*(?:=~|!~|!=|=)", re.sub(r'"[^"]*"', '""', matchers)):
            if label not in (labels_of(metric) or ()):
                wrong.append(f"{metric} has no label {label}")
    for clause in re.findall(r"\b(?:by|on|ignoring|without|group_left|group_right) \(([^)]*)\)", expression):
        for label in filter(None, map(str.strip, clause.split(","))):
            if label not in everything:
                wrong.append(f"nothing in it has a label {label}: {expression}")
    return wrong


def recorded(rules) -> dict[str, set[str]]:
    """Labels of recorded series: what their outermost `by` keeps."""
    found = {}
    for group in rules["groups"]:
        for rule in group["rules"]:
            if "record" in rule:
                kept = re.search(r"by \(([^)]*)\)", rule["expr"]).group(1)
                found[rule["record"]] = {label.strip() for label in kept.split(",")}
    return found
