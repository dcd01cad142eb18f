#!/usr/bin/env python3
"""Writes the dashboards of panels.py as Grafana's JSON, beside itself or into another folder.

    python3 deploy/grafana/generate.py [FOLDER]

Same panels, same bytes: a test regenerates them and fails on a difference.
"""

import json
import pathlib
import sys

from panels import DASHBOARDS, F, Dashboard, Panel

HERE = pathlib.Path(__file__).resolve().parent
SOURCE = {"type": "prometheus", "uid": "${datasource}"}
KINDS = {
    "stat": "stat",
    "gauge": "gauge",
    "timeseries": "timeseries",
    "stacked": "timeseries",
    "states": "state-timeline",
    "heatmap": "heatmap",
    "table": "table",
}


def target(panel: Panel, index: int, expression: str, legend: str) -> dict:
    made = {
        "datasource": SOURCE,
        "editorMode": "code",
        "expr": expression,
        "legendFormat": legend or "__auto",
        "refId": chr(ord("A") + index),
    }
    if panel.kind in ("stat", "gauge", "table"):
        made |= {"instant": True, "range": False}
    if panel.kind == "table":
        made["format"] = "table"
    if panel.kind == "heatmap":
        made["format"] = "heatmap"
    return made


def options(panel: Panel) -> dict:
    tooltip = {"mode": "multi", "sort": "desc"}
    match panel.kind:
        case "stat":
            return {
                "colorMode": "background" if panel.colours or panel.words else "value",
                "graphMode": "none",
                "reduceOptions": {"calcs": ["lastNotNull"], "fields": "", "values": False},
                # A verdict is its name: its value is always 1.
                "textMode": "name" if panel.title == "Verdict" else "value_and_name",
            }
        case "gauge":
            return {"reduceOptions": {"calcs": ["lastNotNull"], "fields": "", "values": False}}
        case "timeseries" | "stacked":
            legend = {"displayMode": "list", "placement": "bottom", "showLegend": True}
            return {"legend": legend, "tooltip": tooltip}
        case "states":
            return {"legend": {"showLegend": False}, "mergeValues": True, "rowHeight": 0.8, "showValue": "never"}
        case "heatmap":
            return {
                "calculate": False,
                "cellGap": 1,
                "color": {"mode": "scheme", "scheme": "Oranges", "steps": 64},
                "tooltip": {"mode": "single"},
                "yAxis": {"unit": panel.unit},
            }
        case "table":
            return {"showHeader": True}
    raise ValueError(panel.kind)


def field_config(panel: Panel) -> dict:
    defaults = {"unit": panel.unit}
    if panel.kind == "gauge":
        defaults |= {"max": 1, "min": 0}
    if panel.kind in ("timeseries", "stacked"):
        stack = "normal" if panel.kind == "stacked" else "none"
        defaults["min"] = 0
        defaults["custom"] = {
            "fillOpacity": 25 if panel.kind == "stacked" else 0,
            "lineWidth": 1,
            "showPoints": "never",
            "stacking": {"mode": stack},
        }
    if panel.words:
        words = {str(value): {"index": value, "text": word} for value, word in panel.words}
        defaults["mappings"] = [{"options": words, "type": "value"}]
        defaults["thresholds"] = {
            "mode": "absolute",
            "steps": [{"color": "green", "value": None}, {"color": "red", "value": 1}],
        }
    overrides = []
    for name, colour in panel.colours:
        matcher = "byRegexp" if name.startswith("/") else "byName"
        fixed = {"id": "color", "value": {"fixedColor": colour, "mode": "fixed"}}
        overrides.append({"matcher": {"id": matcher, "options": name}, "properties": [fixed]})
    return {"defaults": defaults, "overrides": overrides}


def place(panels) -> list:
    """From left to right, in rows as high as their highest panel."""
    made, x, y, high = [], 0, 0, 0
    for number, panel in enumerate(panels, start=1):
        if x + panel.width > 24:
            x, y, high = 0, y + high, 0
        made.append(
            {
                "datasource": SOURCE,
                "description": panel.text,
                "fieldConfig": field_config(panel),
                "gridPos": {"h": panel.height, "w": panel.width, "x": x, "y": y},
                "id": number,
                "options": options(panel),
                "targets": [target(panel, index, *query) for index, query in enumerate(panel.queries)],
                "title": panel.title,
                "transformations": tidy_table() if panel.kind == "table" else [],
                "type": KINDS[panel.kind],
            }
        )
        x, high = x + panel.width, max(high, panel.height)
    return made


def tidy_table() -> list:
    """Labels are the rows; the time and the constant 1 say nothing."""
    return [{"id": "organize", "options": {"excludeByName": {"Time": True, "Value": True}}}]


def variable(name: str, metric: str, label: str) -> dict:
    query = f"label_values({metric}, {label})"
    return {
        "allValue": ".*",  # also matches series without the label
        "current": {"text": ["All"], "value": ["$__all"]},
        "datasource": SOURCE,
        "definition": query,
        "includeAll": True,
        "multi": True,
        "name": name,
        "query": {"query": query, "refId": "variable"},
        "refresh": 2,
        "sort": 1,
        "type": "query",
    }


def dashboard(source: Dashboard) -> dict:
    variables = [
        {"name": "datasource", "query": "prometheus", "type": "datasource"},
        variable("fleet", "tidegate_build_info", "fleet"),
    ]
    if source.rollout:
        variables.append(variable("rollout", f"tidegate_rollout_info{{{F}}}", "rollout"))
    merges = {
        "datasource": SOURCE,
        "enable": True,
        "expr": (
            f"group by (fleet, commit) (tidegate_head_info{{{F}}}) "
            f"unless on (fleet, commit) group by (fleet, commit) (tidegate_head_info{{{F}}} offset 2m)"
        ),
        "iconColor": "blue",
        "name": "New heads",
        "step": "1m",
        "titleFormat": "head {{commit}}",
    }
    return {
        "annotations": {"list": [merges]},
        "description": source.text,
        "editable": True,
        "graphTooltip": 1,
        "links": [
            {"asDropdown": False, "includeVars": True, "keepTime": True, "tags": ["tidegate"], "title": "Tidegate", "type": "dashboards"}
        ],
        "panels": place(source.panels),
        "refresh": "15s",
        "schemaVersion": 39,
        "tags": ["tidegate"],
        "templating": {"list": variables},
        "time": {"from": "now-6h", "to": "now"},
        "title": source.title,
        "uid": f"tidegate-{source.name}",
    }


def main() -> None:
    folder = pathlib.Path(sys.argv[1]) if len(sys.argv) > 1 else HERE
    for source in DASHBOARDS:
        text = json.dumps(dashboard(source), indent=2, sort_keys=True, ensure_ascii=False)
        (folder / f"{source.name}.json").write_text(text + "\n")


if __name__ == "__main__":
    main()
