#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# From a fresh checkout to a working broker: installs what is needed, builds, starts flashqd, publishes a
# real log file of this machine (each line at the time it names), consumes it back, replays it from
# a time in its middle, and checks both results. Leaves nothing running.
#
#   tools/quickstart.sh [LOGFILE]    a log whose lines begin with "YYYY-MM-DD HH:MM:SS "; default: dpkg's
set -euo pipefail
cd "$(dirname "$0")/.."

say() { printf '\n\033[1m%s\033[0m\n' "$*"; }
die() { printf 'quickstart.sh: %s\n' "$*" >&2; exit 1; }

say "1. Packages"
tools/setup.sh build

say "2. Build"
if [ ! -f build/build.ninja ]; then
    meson setup build -Dtests=false -Dbuildtype=release >/dev/null || die "meson setup failed: see build/meson-logs"
fi
ninja -C build
flashq=$PWD/build/tools/flashq
flashqd=$PWD/build/broker/flashqd

log=${1:-/var/log/dpkg.log}
[ -s "$log" ] || die "there is no $log here; name another log: tools/quickstart.sh LOGFILE"

work=$(mktemp -d "${TMPDIR:-/tmp}/flashq-quickstart.XXXXXX")
broker=
cleanup() {
    if [ -n "$broker" ]; then
        kill "$broker" 2>/dev/null || true
        wait "$broker" 2>/dev/null || true
    fi
    rm -rf "$work"
}
trap cleanup EXIT
cp "$log" "$work/input.log" # the log may grow while we look at it
export FLASHQ_BROKERS=shm:$work/flashq.sock

say "3. A broker"
"$flashqd" --set data.dir="$work/data" --set listen.shm="$work/flashq.sock" --set listen.tcp= \
    2>"$work/flashqd.log" &
broker=$!
"$flashq" cluster health --wait 20s || { cat "$work/flashqd.log" >&2; die "the broker did not come up"; }
grep -E 'medium|guarantee|ready' "$work/flashqd.log" || true

say "4. Publish $(wc -l <"$work/input.log") lines of $log, each with its own time"
"$flashq" topic create log
"$flashq" pub log --time-prefix '%Y-%m-%d %H:%M:%S' <"$work/input.log"
"$flashq" topic describe log

say "5. Consume them back"
"$flashq" sub log -o start -e >"$work/back.log"
sent=$(sha256sum <"$work/input.log" | cut -d' ' -f1)
got=$(sha256sum <"$work/back.log" | cut -d' ' -f1)
echo "sent      $sent"
echo "received  $got"
[ "$sent" = "$got" ] || die "what came back differs"

middle=$(awk '{ line[NR] = $1 " " $2 } END { print line[int((NR + 1) / 2)] }' "$work/input.log")
say "6. Replay from $middle, the time of the line in the middle"
from=${middle/ /T}Z
"$flashq" query log --at "$from"
"$flashq" replay log --from "$from" >"$work/replayed.log"
awk -v from="$middle" '($1 " " $2) >= from' "$work/input.log" >"$work/expected.log"
echo "replayed  $(wc -l <"$work/replayed.log") lines $(sha256sum <"$work/replayed.log" | cut -d' ' -f1)"
echo "awk says  $(wc -l <"$work/expected.log") lines $(sha256sum <"$work/expected.log" | cut -d' ' -f1)"
cmp "$work/replayed.log" "$work/expected.log" || die "the replay differs from what awk picks"

say "7. Stop"
kill "$broker"
wait "$broker" || die "flashqd did not stop cleanly"
broker=

cat <<'END'

Everything agreed. To try next:

  build/broker/flashqd --set data.dir=/tmp/flashq &    # your own broker (127.0.0.1:9640 and a local socket)
  build/tools/flashq topic create demo
  echo 'hello' | build/tools/flashq pub demo
  build/tools/flashq sub demo -o start -e -f '%T %p:%o %v\n'
  build/tools/flashq replay demo --from -10m
  build/tools/flashq bench pub demo --msgs 1000000 --size 1024
  build/tools/flashq doctor

README.md has more; examples/ shows the C API.
END
