#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Prints `PASSED FAILED` of what `meson test` logged for some suites of a build folder.

    count_tests.py BUILD SUITE...

Each line of a TAP program counts, any other program counts as one. What is skipped, or was planned and never
came, has failed; so has a program that crashed, timed out or exited with an error after its last good line,
and a test of these suites that the log does not know. What failed is named on stderr.
"""
import collections
import json
import re
import subprocess
import sys

PLAN = re.compile(r"^1\.\.(\d+)", re.M)
LINE = re.compile(r"^(ok|not ok)\b(.*)", re.M)
EXCUSE = re.compile(r"#\s*(skip|todo)", re.I)   # no excuse here


def count(test):
    """(passed, failed) of one line of testlog.json."""
    fine = test["result"] == "OK"
    plan = PLAN.search(test.get("stdout", ""))
    if not plan:
        return (1, 0) if fine else (0, 1)
    lines = LINE.findall(test["stdout"])
    good = sum(1 for verdict, text in lines if verdict == "ok" and not EXCUSE.search(text))
    bad = len(lines) - good + max(0, int(plan.group(1)) - len(lines))
    return good, bad if fine or bad > 0 else 1


def short(name):
    return name.split(" / ")[-1]


def total(tests, expected):
    """tests: of testlog.json; expected: the names of those that had to run."""
    passed = failed = 0
    for test in tests:
        good, bad = count(test)
        passed, failed = passed + good, failed + bad
        if bad > 0:
            print(f"{test['name']}: {test['result']}, {bad} failed", file=sys.stderr)
    missing = collections.Counter(map(short, expected))
    missing.subtract(short(test["name"]) for test in tests)
    for name, absent in missing.items():
        if absent > 0:
            print(f"{name}: was not run", file=sys.stderr)
            failed += absent
    return passed, failed


def main():
    folder, suites = sys.argv[1], set(sys.argv[2:])
    known = json.loads(subprocess.run(["meson", "introspect", "--tests", folder], check=True,
                                      capture_output=True, text=True).stdout)
    expected = [test["name"] for test in known
                if suites & {suite.split(":")[-1] for suite in test["suite"]}]
    with open(f"{folder}/meson-logs/testlog.json", encoding="utf-8") as log:
        passed, failed = total([json.loads(line) for line in log], expected)
    print(passed, failed)
    return 0 if passed + failed > 0 else 1


if __name__ == "__main__":
    sys.exit(main())
