#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Installs what is needed, builds, and runs every suite. Ends with one line `N passed, N failed`.
#
#   tools/test.sh            everything (what CI runs)
#   tools/test.sh --quick    unit, golden, fuzz corpora and crash suites, and shortened integration runs
#
# Stages: gcc build with all suites; clang + ASan + UBSan; clang + TSan; live fuzzing; quick start.
# A stage that cannot run is a failure, never a skip.
set -uo pipefail
cd "$(dirname "$0")/.." || exit 1

quick=0
case "${1:-}" in
"") ;;
--quick) quick=1 ;;
*) echo "usage: tools/test.sh [--quick]" >&2; exit 2 ;;
esac
[ "$quick" = 1 ] && export FLASHQ_TEST_QUICK=1

fuzz_seconds=${FLASHQ_FUZZ_SECONDS:-20}   # for each target
passed=0
failed=0
jobs=$(nproc)

note() { printf '\n==== %s (%s s)\n' "$1" "$SECONDS"; }
pass() { passed=$((passed + 1)); echo "pass: $1"; }
fail() { failed=$((failed + 1)); echo "FAIL: $1"; }

# build FOLDER OPTION...: configures once, builds; a failure counts as one failed test.
build() {
    local folder=$1; shift
    if [ ! -f "$folder/build.ninja" ]; then
        rm -rf "$folder"
        meson setup "$folder" "$@" >"$folder.log" 2>&1 || { cat "$folder.log"; fail "configure $folder"; return 1; }
    fi
    ninja -C "$folder" >"$folder.log" 2>&1 || { tail -n 60 "$folder.log"; fail "build $folder"; return 1; }
}

# suites FOLDER SUITE...: runs meson suites and adds their tests (subtests of TAP included).
suites() {
    local folder=$1; shift
    local arguments=()
    for suite in "$@"; do arguments+=(--suite "$suite"); done
    rm -f "$folder/meson-logs/testlog.junit.xml"
    meson test -C "$folder" --no-rebuild --print-errorlogs --num-processes 1 "${arguments[@]}" || true
    local counts
    if ! counts=$(python3 tools/count_tests.py "$folder/meson-logs/testlog.junit.xml"); then
        fail "suites $* in $folder left no result"
        return
    fi
    local ok bad
    read -r ok bad <<<"$counts"
    passed=$((passed + ok))
    failed=$((failed + bad))
    echo "$folder $*: $ok passed, $bad failed"
}

live_fuzz() {
    local target name corpus
    for target in build-fuzz/tests/fuzz/fuzz_*; do
        [ -x "$target" ] && [ -f "$target" ] || continue
        name=${target##*/fuzz_}
        corpus=$(mktemp -d)
        if "$target" -max_total_time="$fuzz_seconds" -rss_limit_mb=2048 -timeout=20 -print_final_stats=0 \
            -artifact_prefix="build-fuzz/crash-$name-" "$corpus" "tests/fuzz/corpus/$name" \
            >"build-fuzz/fuzz-$name.log" 2>&1; then
            pass "fuzz $name for $fuzz_seconds s"
        else
            tail -n 40 "build-fuzz/fuzz-$name.log"
            fail "fuzz $name"
        fi
        rm -rf "$corpus"
    done
}

note "packages"
tools/setup.sh test || { echo "0 passed, 1 failed"; exit 1; }

note "gcc"
if CC=gcc build build-gcc -Dpmem=enabled -Dsystemd=enabled; then
    if [ "$quick" = 1 ]; then
        suites build-gcc unit golden fuzz crash integration
    else
        suites build-gcc unit golden fuzz race crash integration
    fi
fi

if [ "$quick" = 0 ]; then
    note "clang, AddressSanitizer and UndefinedBehaviorSanitizer"
    export ASAN_OPTIONS=detect_leaks=1:abort_on_error=0:halt_on_error=1 UBSAN_OPTIONS=print_stacktrace=1
    if CC=clang build build-asan -Db_sanitize=address,undefined -Db_lundef=false -Dpmem=enabled; then
        FLASHQ_TEST_SANITIZED=1 FLASHQ_TEST_QUICK=1 suites build-asan unit golden fuzz crash integration
    fi

    note "clang, ThreadSanitizer"
    export TSAN_OPTIONS=halt_on_error=1:second_deadlock_stack=1
    if CC=clang build build-tsan -Db_sanitize=thread -Db_lundef=false -Dpmem=enabled; then
        FLASHQ_TEST_SANITIZED=1 FLASHQ_TEST_QUICK=1 suites build-tsan race
    fi

    note "live fuzzing, $fuzz_seconds s a target"
    if CC=clang build build-fuzz -Dfuzz=true -Db_sanitize=address,undefined -Db_lundef=false; then
        live_fuzz
    fi

    note "quick start"
    if tools/quickstart.sh >build-gcc/quickstart.log 2>&1; then
        pass "quickstart.sh"
    else
        tail -n 40 build-gcc/quickstart.log
        fail "quickstart.sh"
    fi
fi

note "done"
echo "$passed passed, $failed failed"
[ "$failed" -eq 0 ] && [ "$passed" -gt 0 ]
