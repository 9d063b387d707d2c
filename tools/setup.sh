#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Installs every Debian package that building, running and testing FlashQ needs.
# Safe to run again: it asks apt only for what is missing. Needs root or sudo.
#
#   tools/setup.sh [build|test]     build: what quickstart needs; test (default): everything
set -euo pipefail

what=${1:-test}

build_packages=(
    gcc libc6-dev meson ninja-build pkg-config
    libpmem-dev libpmemobj-dev libyaml-dev liblz4-dev libzstd-dev
    libjansson-dev libssl-dev libsystemd-dev
)
test_packages=(
    g++ binutils clang libclang-rt-14-dev llvm-14 clang-format clang-tidy ccache
    libcriterion-dev python3 git curl ca-certificates gawk e2fsprogs strace groff-base
)

case "$what" in
build) wanted=("${build_packages[@]}") ;;
test) wanted=("${build_packages[@]}" "${test_packages[@]}") ;;
*) echo "usage: tools/setup.sh [build|test]" >&2; exit 2 ;;
esac

missing=()
for package in "${wanted[@]}"; do
    status=$(dpkg-query -W -f '${db:Status-Status}' "$package" 2>/dev/null || true)
    [ "$status" = installed ] || missing+=("$package")
done
[ "${#missing[@]}" -eq 0 ] && exit 0

as_root=()
if [ "$(id -u)" -ne 0 ]; then
    command -v sudo >/dev/null || { echo "setup.sh: needs root or sudo to install: ${missing[*]}" >&2; exit 1; }
    as_root=(sudo)
fi
export DEBIAN_FRONTEND=noninteractive
echo "setup.sh: installing ${missing[*]}" >&2
"${as_root[@]}" apt-get update -qq >&2
"${as_root[@]}" apt-get install -y -qq --no-install-recommends "${missing[@]}" >&2
