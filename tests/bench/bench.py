# SPDX-License-Identifier: Apache-2.0
"""tools/bench.sh: measures the rows of rows.py in interleaved pairs and says whether they hold."""
import argparse
import contextlib
import json
import os
import sys

import harness
import plot
import rows
from rig import Impossible, Rig, machine

PIPELINE_BINDING = 10.0  # GB/s; below it absolute figures do not bind


def parse(arguments):
    parser = argparse.ArgumentParser(prog="tools/bench.sh", description="Measures FlashQ beside this machine.")
    parser.add_argument("rows", nargs="*", metavar="ROW", help="rows to measure [all]")
    parser.add_argument("--list", action="store_true", help="the rows and what must hold")
    parser.add_argument("--quick", action="store_true", help="short runs, one pair: to see that it works")
    parser.add_argument("--pairs", type=int, metavar="N", help="interleaved pairs a row [5]")
    parser.add_argument("--dir", default="/var/tmp", help="a directory on a disk, for pub-ext4 [/var/tmp]")
    parser.add_argument("--cores", default="0,1", metavar="A,B", help="of the client and of the broker [0,1]")
    parser.add_argument("--json", metavar="FILE", help="also everything that was measured")
    parser.add_argument("--markdown", metavar="FILE", help="also the table, for docs/performance.md")
    parser.add_argument("--plot", metavar="FILE", help="rolls: also the plot, as SVG")
    options = parser.parse_args(arguments)
    known = {row.name for row in rows.ROWS}
    unknown = [name for name in options.rows if name not in known]
    if unknown:
        parser.error(f"there is no row {unknown[0]}: one of {' '.join(sorted(known))}")
    try:
        options.cores = tuple(int(core) for core in options.cores.split(","))
    except ValueError:
        options.cores = ()
    if len(options.cores) != 2 or options.cores[0] == options.cores[1]:
        parser.error("--cores: expected two different processors such as 0,1")
    if not set(options.cores) <= os.sched_getaffinity(0):
        parser.error(f"--cores: this process may use {sorted(os.sched_getaffinity(0))}")
    options.pairs = options.pairs or (1 if options.quick else 5)
    return options


def number(value):
    if value >= 1e5:
        return f"{value / 1e6:.2f} M"
    return f"{value:.0f}" if value >= 1000 else f"{value:.2f}"


def limit_words(check):
    unit = "" if check.unit == "x" else f" {check.unit}"
    return f"{'>=' if check.at_least else '<='} {number(check.limit)}{unit}"


def measure(row, pairs):
    """[{figures of a pair}] of a row; ours and the yardstick take turns."""
    found = []
    with row.ready():
        for pair in range(pairs):
            figures = dict(row.ours())
            figures.update(row.yardstick(figures))
            found.append(figures)
            words = ", ".join(f"{key} {number(value)}" for key, value in figures.items())
            print(f"{row.name} {pair + 1}/{pairs}: {words}", file=sys.stderr, flush=True)
    return found


def judge(row, found, is_binding):
    """[{what a check came to}]"""
    results = []
    for check in row.checks:
        value = rows.median([check.value(pair) for pair in found])
        verdict = "ok" if check.holds(value) else "short"
        if check.is_absolute and not is_binding:
            verdict = "not binding"
        results.append({"row": row.name, "what": check.what, "value": value, "limit": check.limit,
                        "at_least": check.at_least, "unit": check.unit, "absolute": check.is_absolute,
                        "verdict": verdict, "shown": number(value) + ("" if check.unit == "x" else f" {check.unit}"),
                        "limit_shown": limit_words(check),
                        "spread": [min(check.value(pair) for pair in found),
                                   max(check.value(pair) for pair in found)]})
    return results


def beside(found):
    """The medians of every figure, for people."""
    return ", ".join(f"{key} {number(rows.median([pair[key] for pair in found]))}" for key in found[0])


def run_row(kind, rig, options, is_binding):
    row = kind(rig)
    document = {"row": row.name, "what": row.what, "pairs": [], "checks": []}
    try:
        with contextlib.redirect_stdout(sys.stderr):  # a broker's log, when something fails
            document["pairs"] = measure(row, options.pairs)
        document["checks"] = judge(row, document["pairs"], is_binding)
    except (Impossible, AssertionError, OSError, KeyError, ZeroDivisionError) as fault:
        document["fault"] = f"{type(fault).__name__}: {fault}"[:600]
        print(f"{row.name}: {document['fault']}", file=sys.stderr, flush=True)
    if isinstance(row, rows.Rolls) and document["checks"] and options.plot:
        title = (f"publish to acknowledgement, 1 KB, {row.rate / 1e6:.2f} M records/s, segments of "
                 f"{row.segment >> 20} MiB, shm, emulated NVM")
        with open(options.plot, "w", encoding="utf-8") as file:
            file.write(plot.latency_over_time(row.stretches, row.rolls, title))
    return document


def table(documents):
    """Lines of (row, what, value, limit, verdict, figures)."""
    lines = [("row", "what", "median", "must be", "verdict", "beside it")]
    for document in documents:
        if not document["checks"]:
            lines.append((document["row"], document.get("fault", "not measured")[:60], "-", "-", "short", ""))
        for index, check in enumerate(document["checks"]):
            lines.append((document["row"], check["what"], check["shown"], check["limit_shown"], check["verdict"],
                          beside(document["pairs"]) if index == 0 else ""))
    return lines


def as_text(lines):
    widths = [max(len(line[column]) for line in lines) for column in range(5)]
    return "\n".join("  ".join(cell.ljust(width) for cell, width in zip(line, widths + [0])).rstrip()
                     for line in lines)


def as_markdown(heading, documents):
    out = [heading, "", "| row | what | median | must be | verdict |", "|---|---|---|---|---|"]
    names = {document["row"]: document["what"] for document in documents}
    for line in table(documents)[1:]:
        out.append(f"| `{line[0]}` | {names[line[0]]}: {line[1]} | {line[2]} | {line[3]} | {line[4]} |")
    return "\n".join(out) + "\n"


def show_rows():
    for kind in rows.ROWS:
        print(f"{kind.name:20}{kind.what}")
        for check in kind.checks:
            binding = " (where the pipeline makes 10 GB/s)" if check.is_absolute else ""
            print(f"{'':20}  {check.what} {limit_words(check)}{binding}")


def main():
    options = parse(sys.argv[1:])
    if options.list:
        show_rows()
        return 0
    rig = Rig(options.cores, options.dir, options.quick)
    pipeline = rows.median([rig.limits("pipeline", size=1024)["pipeline_gb_per_s"] for _ in range(3)])
    is_binding = pipeline >= PIPELINE_BINDING
    heading = (f"{machine(rig)}; pipeline {pipeline:.1f} GB/s{'' if is_binding else ': absolute figures do not bind'}; "
               f"NVM is emulated (tmpfs with flush: pmem); medians of {options.pairs} interleaved pairs"
               f"{', quick' if options.quick else ''}")
    print(heading, file=sys.stderr, flush=True)
    chosen = [kind for kind in rows.ROWS if not options.rows or kind.name in options.rows]
    documents = [run_row(kind, rig, options, is_binding) for kind in chosen]
    print(heading)
    print(as_text(table(documents)))
    if options.json:
        version = harness.flashq("-O", "json", "version")[0]
        with open(options.json, "w", encoding="utf-8") as file:
            json.dump({"schema": "flashq.bench.table/1", "machine": heading, "pipeline_gb_per_s": pipeline,
                       "binding": is_binding, "command": "tools/bench.sh " + " ".join(sys.argv[1:]),
                       "version": json.loads(version), "rows": documents}, file, indent=2)
    if options.markdown:
        with open(options.markdown, "w", encoding="utf-8") as file:
            file.write(as_markdown(heading, documents))
    is_good = all(document["checks"] and all(check["verdict"] != "short" for check in document["checks"])
                  for document in documents)
    return 0 if is_good else 1


if __name__ == "__main__":
    sys.exit(main())
