# SPDX-License-Identifier: Apache-2.0
"""tools/ablation.sh: adaptive batching beside every fixed setting, from 1,000 records a second to saturation.

For each size of records: what saturates comes first. Then, at each load, separate runs choose the fixed setting with the
lowest p99 (flat out: with the highest throughput), and interleaved pairs compare it with adaptive batching.
"""
import argparse
import contextlib
import json
import os
import statistics
import sys
import time

from rig import Impossible, Rig, machine

SIZES = (64, 1024, 16384)
LOADS = 10
LEAST_RATE = 1000
HIGHEST_SHARE = 0.7  # of what saturates: the load before the last
P99_RATIO = 1.3
THROUGHPUT_RATIO = 0.95
ALONE_BYTES = 64  # a batch.max.bytes that no second record fits into
BEGIN, END = "<!-- measured: begin -->", "<!-- measured: end -->"
RUN_TIMEOUT_S = 60
ADAPTIVE = ("adaptive", ("batching=adaptive",))


def fixed(size_bytes, linger):
    if size_bytes == ALONE_BYTES:
        name = "1 record"
    else:
        name = f"{size_bytes >> 10} KiB, {linger} ms"
    return name, ("batching=fixed", f"batch.max.bytes={size_bytes}", f"linger.ms={linger}")


def settings(quick):
    """(name, keys) of each. A batch of one record is full at once, so it knows no linger."""
    sizes = (65536,) if quick else (16384, 65536, 262144, 1048576)
    lingers = ("0", "1") if quick else ("0", "0.1", "1", "5")
    return [fixed(ALONE_BYTES, "0")] + [fixed(size, linger) for size in sizes for linger in lingers]


def loads(saturated, count):
    """Records a second, evenly on a logarithmic scale; None: as fast as it goes."""
    highest = max(saturated * HIGHEST_SHARE, LEAST_RATE * 2)
    steps = count - 2
    return [round(LEAST_RATE * (highest / LEAST_RATE) ** (i / steps)) for i in range(count - 1)] + [None]


class Runs:
    """Runs of one size against one broker."""

    def __init__(self, client, size, quick):
        self.client = client
        self.size = size
        self.quick = quick

    def run(self, keys, rate, is_long):
        """{p99 in us, msgs_per_s, batch_bytes} of one run."""
        span_ms = 100 if self.quick else 600 if is_long else 200
        if not self.quick and rate and rate < 10000:
            span_ms *= 2  # enough records for a 99th percentile
        arguments = ("pub", "ablation", "--size", str(self.size), "--duration", f"{span_ms}ms", "--warmup",
                     f"{span_ms // 5}ms", "--rate", str(rate or "max"))
        try:
            out = self.client.bench(*arguments, keys=keys, timeout=RUN_TIMEOUT_S)
        except Impossible as reason:
            print(f"ablation.sh: once more: {reason}", file=sys.stderr, flush=True)
            out = self.client.bench(*arguments, keys=keys, timeout=RUN_TIMEOUT_S)
        return {"p99": out["latency_us"]["p99"], "p50": out["latency_us"]["p50"],
                "msgs_per_s": out["msgs_per_s"], "batch_bytes": out["batches"]["mean_bytes"]}

    def choose(self, candidates, rate):
        """The best of the fixed settings, by separate runs: one of each, then more of the best few."""
        def worth(runs):
            if rate is None:
                return -statistics.median(run["msgs_per_s"] for run in runs)
            return statistics.median(run["p99"] for run in runs)

        found = {name: [self.run(keys, rate, False)] for name, keys in candidates}
        if not self.quick:
            keys_of = dict(candidates)
            for _ in range(2):
                for name in sorted(found, key=lambda name: worth(found[name]))[:3]:
                    found[name].append(self.run(keys_of[name], rate, False))
            found = {name: runs for name, runs in found.items() if len(runs) > 1}
        best = min(found, key=lambda name: worth(found[name]))
        return best, dict(candidates)[best]

    def compare(self, keys, rate, pairs):
        """Interleaved pairs, adaptive and fixed taking turns to be first."""
        ours, theirs = [], []
        for pair in range(pairs):
            order = [(ours, ADAPTIVE[1]), (theirs, keys)]
            for runs, arm in order if pair % 2 == 0 else reversed(order):
                runs.append(self.run(arm, rate, True))
        return ours, theirs


def median(runs, figure):
    return statistics.median(run[figure] for run in runs)


def ratio(ours, theirs, figure):
    """The median of the pairs' ratios."""
    return statistics.median(a[figure] / b[figure] for a, b in zip(ours, theirs))


def row_of(size, rate, best, ours, theirs):
    row = {"size": size, "rate": rate, "best": best, "batch_bytes": median(ours, "batch_bytes"),
           "p50": median(ours, "p50"), "p99": median(ours, "p99"), "best_p99": median(theirs, "p99"),
           "p99_ratio": ratio(ours, theirs, "p99"), "msgs_per_s": median(ours, "msgs_per_s"),
           "throughput_ratio": ratio(ours, theirs, "msgs_per_s")}
    row["holds"] = (row["throughput_ratio"] >= THROUGHPUT_RATIO if rate is None
                    else row["p99_ratio"] <= P99_RATIO)
    return row


def measure_size(rig, options, size, rows):
    """Adds this size's rows to `rows`; returns how many could not be had. A load that fails costs its own row."""
    missing = 0
    with rig.broker() as client:
        runs = Runs(client, size, options.quick)
        client.fill("ablation", 2 * 8 * rig.segment, size)
        saturated = statistics.median(runs.run(ADAPTIVE[1], None, False)["msgs_per_s"] for _ in range(3))
        for rate in loads(saturated, 4 if options.quick else LOADS):
            print(f"ablation.sh: {size} B, {rate or 'max'} records/s", file=sys.stderr, flush=True)
            try:
                best, keys = runs.choose(settings(options.quick), rate)
                ours, theirs = runs.compare(keys, rate, options.pairs)
            except Impossible as reason:
                missing += 1
                print(f"ablation.sh: {size} B at {rate or 'max'}: {reason}", file=sys.stderr, flush=True)
                continue
            rows.append(row_of(size, rate, best, ours, theirs))
            print(line(rows[-1]), file=sys.stderr, flush=True)
    return missing


def measure(rig, options):
    """The rows, and how many are missing; of a size whose broker is lost, those until then."""
    rows, missing = [], 0
    for size in options.sizes:
        try:
            missing += measure_size(rig, options, size, rows)
        except Impossible as reason:
            missing += 1
            print(f"ablation.sh: {size} B: {reason}", file=sys.stderr, flush=True)
    return rows, missing


HEAD = ("| record | records/s | best fixed setting | p99 adaptive | p99 fixed | ratio | p50 adaptive | "
        "mean batch adaptive | throughput ratio | holds |\n|---|---|---|---|---|---|---|---|---|---|")


def line(row):
    rate = f"{row['rate']:,}" if row["rate"] else f"{row['msgs_per_s']:,.0f}, flat out"
    return (f"| {row['size']} B | {rate} | {row['best']} | {row['p99']:.1f} | {row['best_p99']:.1f} | "
            f"{row['p99_ratio']:.2f} | {row['p50']:.1f} | {row['batch_bytes']:,.0f} | "
            f"{row['throughput_ratio']:.2f} | {'yes' if row['holds'] else 'no'} |")


def report(options, rows, began, kept=()):
    """The page's text; `kept`: lines of other sizes' rows, from before."""
    minutes = (time.monotonic() - began) / 60
    words = [f"`tools/ablation.sh{' --quick' if options.quick else ''}`, {time.strftime('%Y-%m-%d')}, "
             f"{options.pairs} pairs, {minutes:.0f} minutes; {options.machine}; memory on tmpfs stands in for NVM "
             "(emulated). Latencies in us, from the intended moment of sending; flat out: from the send call.",
             ""]
    if kept:
        words += ["Rows of the sizes " + ", ".join(sorted({size_of(row) for row in kept}, key=int)) +
                  " are of an earlier run.", ""]
    lines = sorted([*kept, *map(line, rows)], key=lambda row: int(size_of(row)))
    held = sum(row.endswith("| yes |") for row in lines)
    return "\n".join([*words, HEAD, *lines, "", f"{held} of {len(lines)} rows hold."])


def size_of(row):
    """The size of records in a line of the table, as text."""
    return row.split()[1]


def rows_between(content):
    """The lines of the table that a page has now."""
    part = content[content.index(BEGIN):content.index(END)]
    return [row for row in part.splitlines() if row.endswith(("| yes |", "| no |"))]


def update(path, options, rows, began):
    """Puts the table into the page; rows of sizes that were not measured now stay."""
    with open(path, encoding="utf-8") as page:
        content = page.read()
    measured = {str(row["size"]) for row in rows}
    text = report(options, rows, began, [row for row in rows_between(content) if size_of(row) not in measured])
    begin, end = content.index(BEGIN) + len(BEGIN), content.index(END)
    with open(path, "w", encoding="utf-8") as page:
        page.write(content[:begin] + "\n" + text + "\n" + content[end:])


def parse(arguments):
    parser = argparse.ArgumentParser(prog="tools/ablation.sh", description=__doc__.split("\n", maxsplit=1)[0])
    parser.add_argument("--quick", action="store_true", help="few loads and settings, short: to see that it works")
    parser.add_argument("--pairs", type=int, metavar="N", help="interleaved pairs a load [5]")
    parser.add_argument("--sizes", default="64,1024,16384", metavar="S,…", help="of records [64,1024,16384]")
    parser.add_argument("--cores", default="0,1", metavar="A,B", help="of the client and of the broker [0,1]")
    parser.add_argument("--json", metavar="FILE", help="also the figures")
    parser.add_argument("--update", metavar="FILE", help="also the table into this page (docs/batching.md)")
    options = parser.parse_args(arguments)
    try:
        options.cores = tuple(int(core) for core in options.cores.split(","))
        options.sizes = tuple(int(size) for size in options.sizes.split(","))
    except ValueError:
        parser.error("--cores and --sizes take numbers with commas between them")
    if len(options.cores) != 2 or not set(options.cores) <= os.sched_getaffinity(0):
        parser.error(f"--cores: two of {sorted(os.sched_getaffinity(0))}")
    options.pairs = options.pairs or (1 if options.quick else 5)
    return options


def main(arguments):
    options = parse(arguments)
    rig = Rig(options.cores, disk="/var/tmp", quick=options.quick)
    options.machine = machine(rig)
    began = time.monotonic()
    rows, missing = measure(rig, options)
    print(report(options, rows, began))
    if options.update and rows:
        update(options.update, options, rows, began)
    if options.json:
        with contextlib.closing(open(options.json, "w", encoding="utf-8")) as out:
            json.dump({"machine": options.machine, "rows": rows}, out, indent=1)
    return 0 if rows and not missing and all(row["holds"] for row in rows) else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
