#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""tools/count_tests.py counts everything that is not a success as a failure.

    counting.py SOURCE_ROOT
"""
import sys

sys.path.insert(0, sys.argv[1] + "/tools")
import count_tests

# result of meson, stdout, expected (passed, failed)
CASES = (
    ("all lines good", "OK", "1..2\nok 1 - a\nok 2 - b\n", (2, 0)),
    ("the plan comes last", "OK", "ok 1 - a\nok 2 - b\n1..2\n", (2, 0)),
    ("one line bad", "ERROR", "1..2\nnot ok 1 - a\nok 2 - b\n", (1, 1)),
    ("crashed between two", "ERROR", "1..3\nok 1\n", (1, 2)),
    ("crashed after the last", "ERROR", "1..2\nok 1\nok 2\n", (2, 1)),
    ("crashed before any", "ERROR", "", (0, 1)),
    ("timed out", "TIMEOUT", "1..3\nok 1\n", (1, 2)),
    ("timed out after the last", "TIMEOUT", "1..1\nok 1\n", (1, 1)),
    ("too few", "ERROR", "1..3\nok 1\nok 2\n", (2, 1)),
    ("bailed out", "ERROR", "Bail out! no test was run\n", (0, 1)),
    ("a skipped line", "OK", "1..2\nok 1 # SKIP no root\nok 2\n", (1, 1)),
    ("a line to do", "OK", "1..1\nnot ok 1 # TODO\n", (0, 1)),
    ("all skipped", "SKIP", "1..0 # SKIP no tests\n", (0, 1)),
    ("plain program, good", "OK", "some words\n", (1, 0)),
    ("plain program, bad", "FAIL", "", (0, 1)),
    ("plain program, skipped", "SKIP", "", (0, 1)),
    ("plain program, timed out", "TIMEOUT", "ok so far\n", (0, 1)),
)

print(f"1..{len(CASES) + 2}")
number = 0


def check(name, got, wanted):
    global number
    number += 1
    print(f"{'ok' if got == wanted else 'not ok'} {number} - {name}")
    if got != wanted:
        print(f"# {got}, not {wanted}")


def entry(name, result, stdout):
    return {"name": f"project:suite / {name}", "result": result, "stdout": stdout}


for title, result, stdout, wanted in CASES:
    check(title, count_tests.count(entry("x", result, stdout)), wanted)
log = [entry("a", "OK", "1..1\nok 1\n"), entry("b", "OK", "")]
check("all were run", count_tests.total(log, ["a", "b"]), (2, 0))
check("two of one name, one was not run", count_tests.total(log, ["a", "b", "b", "c"]), (2, 2))
