#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Installs what is needed, builds, and runs every suite. Ends with one line `N passed, N failed`.
#
#   tools/test.sh            everything (what CI runs)
#   tools/test.sh --quick    gcc alone: unit, golden, fuzz corpora, crash, shortened integration
#
# Stages: gcc build with all suites; clang + ASan + UBSan; clang + TSan; live fuzzing; quick start.
# A stage that cannot run, a test that was skipped and a sanitizer's report are failures.
set -uo pipefail
cd "$(dirname "$0")/.." || exit 1
ulimit -c 0

quick=0
case "${1:-}" in
"") ;;
--quick) quick=1 ;;
*) echo "usage: tools/test.sh [--quick]" >&2; exit 2 ;;
esac

fuzz_seconds=${FLASHQ_FUZZ_SECONDS:-20}   # for each target
passed=0
failed=0

note() { printf '\n==== %s (at %s s)\n' "$1" "$SECONDS"; }
pass() { passed=$((passed + 1)); echo "pass: $1"; }
fail() { failed=$((failed + 1)); echo "FAIL: $1"; }

# build FOLDER TARGET OPTION...: configures once, builds; a failure counts as one failed test.
build() {
    local folder=$1 target=$2; shift 2
    if [ ! -f "$folder/build.ninja" ]; then
        rm -rf "$folder"
        meson setup "$folder" "$@" >"$folder.log" 2>&1 || { cat "$folder.log"; fail "configure $folder"; return 1; }
    fi
    ninja -C "$folder" "$target" >"$folder.log" 2>&1 ||
        { tail -n 60 "$folder.log"; fail "build $folder"; return 1; }
    echo "$folder is built (at $SECONDS s)"
}

# suites FOLDER SUITE...: runs meson suites and adds their tests (each line of TAP) and what sanitizers
# wrote to FOLDER/reports: Criterion's workers report a leak and pass all the same.
suites() {
    local folder=$1; shift
    local arguments=() suite report counts ok bad
    for suite in "$@"; do arguments+=(--suite "$suite"); done
    rm -rf "$folder/reports" "$folder/meson-logs/testlog.json"
    mkdir "$folder/reports"
    meson test -C "$folder" --no-rebuild --print-errorlogs "${arguments[@]}"
    if ! counts=$(python3 tools/count_tests.py "$folder" "$@"); then
        fail "suites $* in $folder left no result"
        return
    fi
    read -r ok bad <<<"$counts"
    passed=$((passed + ok))
    failed=$((failed + bad))
    echo "$folder $*: $ok passed, $bad failed (at $SECONDS s)"
    for report in "$folder"/reports/*; do
        [ -f "$report" ] || continue
        head -n 60 "$report"
        fail "a sanitizer's report in $folder"
    done
}

live_fuzz() {
    local name corpus
    for corpus in tests/fuzz/corpus/*; do
        name=${corpus##*/}
        mkdir -p "build-fuzz/found/$name"
        if "build-fuzz/tests/fuzz/fuzz_$name" -max_total_time="$fuzz_seconds" -rss_limit_mb=2048 -timeout=20 \
            -artifact_prefix="build-fuzz/crash-$name-" "build-fuzz/found/$name" "$corpus" \
            >"build-fuzz/fuzz-$name.log" 2>&1; then
            pass "fuzz $name for $fuzz_seconds s: $(grep -m1 -o 'Done [0-9]* runs' "build-fuzz/fuzz-$name.log")"
        else
            tail -n 40 "build-fuzz/fuzz-$name.log"
            fail "fuzz $name"
        fi
    done
}

under_asan() {
    export FLASHQ_TEST_SANITIZED=1 FLASHQ_TEST_QUICK=1
    export LSAN_OPTIONS=suppressions=$PWD/tests/lib/leaks.supp:print_suppressions=0
    local reports=$PWD/build-asan/reports/report
    ASAN_OPTIONS=detect_leaks=1:log_path=$reports UBSAN_OPTIONS=print_stacktrace=1:log_path=$reports \
        suites build-asan unit golden fuzz crash
    # these look for reports in what the programs print
    ASAN_OPTIONS=detect_leaks=1 UBSAN_OPTIONS=print_stacktrace=1 suites build-asan integration
    unset FLASHQ_TEST_SANITIZED FLASHQ_TEST_QUICK LSAN_OPTIONS
}

# The race programs, then real brokers of two shards with real clients.
under_tsan() {
    export FLASHQ_TEST_SANITIZED=1 FLASHQ_TEST_QUICK=1 FLASHQ_TEST_SHARDS=2
    export TSAN_OPTIONS=halt_on_error=1:second_deadlock_stack=1
    suites build-tsan race
    export FLASHQ_BUILD=build-tsan PYTHONPATH=tests/lib
    local name log ok
    for name in cli roundtrip kill load bench; do
        log=build-tsan/$name.log
        timeout 600 python3 "tests/integration/test_$name.py" >"$log" 2>&1
        ok=$?
        if [ "$ok" -eq 0 ] && ! grep -q '^not ok' "$log"; then
            pass "test_$name under TSan: $(grep -c '^ok' "$log") cases"
        else
            tail -n 80 "$log"
            fail "test_$name under TSan"
        fi
    done
    unset FLASHQ_TEST_SANITIZED FLASHQ_TEST_QUICK FLASHQ_TEST_SHARDS TSAN_OPTIONS FLASHQ_BUILD PYTHONPATH
}

quick_start() {
    if tools/quickstart.sh >build-gcc/quickstart.log 2>&1; then
        pass "quickstart.sh"
    else
        tail -n 40 build-gcc/quickstart.log
        fail "quickstart.sh"
    fi
}

note "packages"
tools/setup.sh test || { echo "0 passed, 1 failed"; exit 1; }

note "gcc"
if CC=gcc build build-gcc all -Dpmem=enabled -Dsystemd=enabled; then
    if [ "$quick" = 1 ]; then export FLASHQ_TEST_QUICK=1; else export FLASHQ_CRASH_WORDS=12; fi
    suites build-gcc unit golden fuzz crash integration
    unset FLASHQ_CRASH_WORDS
fi

if [ "$quick" = 0 ]; then
    note "clang, AddressSanitizer and UndefinedBehaviorSanitizer"
    CC=clang build build-asan all -Db_sanitize=address,undefined -Db_lundef=false -Dpmem=enabled && under_asan

    note "clang, ThreadSanitizer"
    CC=clang build build-tsan tsan -Db_sanitize=thread -Db_lundef=false -Dpmem=enabled && under_tsan

    note "live fuzzing, $fuzz_seconds s a target"
    CC=clang build build-fuzz fuzzers -Dfuzz=true -Db_sanitize=address,undefined -Db_lundef=false && live_fuzz

    note "quick start"
    quick_start
fi

note "done"
echo "$passed passed, $failed failed"
[ "$failed" -eq 0 ] && [ "$passed" -gt 0 ]
