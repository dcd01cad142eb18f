"""A table of what `loadgen saturate` found, from files TIERS.MESSAGE.SERVER.ROUND.json in a directory."""

import collections
import json
import pathlib
import statistics
import sys

FIGURES = {
    "messages/s": lambda run: run["messages_per_s"],
    "user, µs a message": lambda run: run["server"]["user_us"],
    "user + system, µs a message": lambda run: run["server"]["both_us"],
    "round trip p99, ms": lambda run: run["round_trip"]["p99_ms"],
}
MORE_IS_BETTER = {"messages/s"}


def table(directory):
    runs = collections.defaultdict(lambda: collections.defaultdict(list))
    for file in pathlib.Path(directory).glob("*.json"):
        tiers, message, server, _ = file.stem.split(".")
        runs[int(tiers), message][server].append(json.loads(file.read_text()))
    lines = ["| Tiers | message | figure | gateway | opamp-go | times better |", "|---|---|---|---|---|---|"]
    for (tiers, message), servers in sorted(runs.items()):
        size = servers["gateway"][0]["message_bytes"]
        for name, figure in FIGURES.items():
            gateway, reference = (statistics.median(map(figure, servers[server])) for server in ("gateway", "opamp-go"))
            better, worse = (gateway, reference) if name in MORE_IS_BETTER else (reference, gateway)
            digits = 0 if name in MORE_IS_BETTER else 2
            ratio = f"{better / worse:.2f}" if worse else "-"
            lines.append(
                f"| {tiers:,} | {message}, {size} bytes | {name} | {gateway:,.{digits}f} | {reference:,.{digits}f} | {ratio} |"
            )
    void = sorted({
        f"{server} with {tiers:,} Tiers, {message}: {run['bottleneck']}"
        for (tiers, message), servers in runs.items() for server, all_ in servers.items() for run in all_ if run["bottleneck"]
    })
    return "\n".join(lines + [""] * bool(void) + void)


if __name__ == "__main__":
    print(table(sys.argv[1]))
