#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Compares adaptive batching with fixed sizes and lingers at 10 loads; docs/batching.md says what and why. Builds a
# release build if there is none, starts its own brokers, pins everything to two processors.
#
#   tools/ablation.sh [--quick] [OPTION]...     tools/ablation.sh --help
#   tools/ablation.sh --update docs/batching.md
#
# Exit code: 0 every row holds, 1 one does not or could not be measured, 2 usage.
set -uo pipefail
cd "$(dirname "$0")/.." || exit 1
ulimit -c 0

if [ -z "${FLASHQ_BUILD:-}" ]; then
    FLASHQ_BUILD=$PWD/build-release
    if [ ! -f "$FLASHQ_BUILD/build.ninja" ]; then
        meson setup "$FLASHQ_BUILD" -Dbuildtype=release -Dtests=false >/dev/null ||
            { echo "ablation.sh: meson setup failed: see $FLASHQ_BUILD/meson-logs" >&2; exit 1; }
    fi
    ninja -C "$FLASHQ_BUILD" broker/flashqd tools/flashq >/dev/null ||
        { echo "ablation.sh: the build failed; try: ninja -C $FLASHQ_BUILD" >&2; exit 1; }
fi
export FLASHQ_BUILD
exec env PYTHONPATH=tests/lib:tests/bench PYTHONDONTWRITEBYTECODE=1 python3 tests/bench/ablation.py "$@"
