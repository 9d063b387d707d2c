#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Measures FlashQ beside what this machine can do, and says for each row of the table in docs/performance.md whether
# it holds. Builds a release build if there is none, starts its own brokers, pins everything to two processors.
#
#   tools/bench.sh [--quick] [OPTION]... [ROW]...     tools/bench.sh --help, tools/bench.sh --list
#
# Exit code: 0 all rows hold, 1 one is short or could not be measured, 2 usage.
set -uo pipefail
cd "$(dirname "$0")/.." || exit 1
ulimit -c 0

if [ -z "${FLASHQ_BUILD:-}" ]; then
    FLASHQ_BUILD=$PWD/build-release
    if [ ! -f "$FLASHQ_BUILD/build.ninja" ]; then
        meson setup "$FLASHQ_BUILD" -Dbuildtype=release -Dtests=false >/dev/null ||
            { echo "bench.sh: meson setup failed: see $FLASHQ_BUILD/meson-logs" >&2; exit 1; }
    fi
    ninja -C "$FLASHQ_BUILD" broker/flashqd tools/flashq >/dev/null ||
        { echo "bench.sh: the build failed; try: ninja -C $FLASHQ_BUILD" >&2; exit 1; }
fi
export FLASHQ_BUILD
exec env PYTHONPATH=tests/lib:tests/bench PYTHONDONTWRITEBYTECODE=1 python3 tests/bench/bench.py "$@"
