#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Checks the directions of dependencies: what each layer may include, and that each third-party
header comes in through its one door. Prints TAP."""
import os
import re
import sys

ROOT = os.path.abspath(sys.argv[1] if len(sys.argv) > 1 else ".")

# folder -> first components of the quoted includes that it may use, beside its own folder's
LAYERS = {
    "libflashq/base": {"base", "flashq"},
    "libflashq/wire": {"base", "flashq", "wire"},
    "libflashq/fabric": {"base", "flashq", "fabric"},
    "libflashq/conf": {"base", "flashq", "conf"},
    "libflashq/client": {"base", "flashq", "wire", "fabric", "conf", "client"},
    "producer": {"base", "flashq", "wire", "fabric", "conf", "client", "producer"},
    "consumer": {"base", "flashq", "wire", "fabric", "conf", "client", "consumer"},
    "libflashq/api": {"base", "flashq", "wire", "fabric", "conf", "client", "producer", "consumer",
                      "api"},
    "broker/storage": {"base", "flashq", "wire", "fabric", "storage"},
    "broker/timeindex": {"base", "flashq", "wire", "storage", "timeindex"},
    "broker/partition": {"base", "flashq", "wire", "fabric", "storage", "timeindex", "partition"},
    "broker/coord": {"base", "flashq", "wire", "conf", "storage", "coord"},
    "broker/session": {"base", "flashq", "wire", "fabric", "conf", "storage", "timeindex",
                       "partition", "coord", "session"},
    "broker": None,   # the composition root and the threads see everything but the client side
    "tools": {"base", "flashq", "storage", "wire", "tools"},
}
# what no broker file may see, and no client file either
BROKER_NEVER = {"client", "producer", "consumer", "api", "tools"}
# tools use the public API; these layers only in the files named
TOOLS_DOORS = {
    "storage": re.compile(r"tools/cmd_log[a-z_]*\.c$"),
    "wire": re.compile(r"tools/cmd_log[a-z_]*\.c$"),
    "base": re.compile(r"tools/(cmd_log|bench_limits|cmd_bench_limits)[a-z_]*\.[ch]$"),
}
DOORS = {
    r"infiniband/.*|rdma/.*": r"libflashq/fabric/verbs/",
    r"libpmem\.h": r"broker/storage/persist_[a-z_]*\.c$",
    r"libpmemobj\.h|libpmemobj/.*": r"broker/storage/meta_pmem[a-z_]*\.[ch]$",
    r"zookeeper/.*": r"broker/coord/",
    r"yaml\.h": r"libflashq/conf/[a-z_]*\.c$",
    r"lz4.*\.h|zstd.*\.h": r"libflashq/wire/[a-z_]*\.c$",
    r"jansson\.h": r"tools/",
    r"systemd/.*": r"broker/[a-z_]*\.c$",
}
ONE_FILE = [r"yaml\.h", r"libpmem\.h", r"lz4.*\.h|zstd.*\.h"]

INCLUDE = re.compile(r'^\s*#\s*include\s+([<"])([^>"]+)[>"]', re.M)


def sources():
    for top in ("libflashq", "producer", "consumer", "broker", "tools"):
        for folder, _, names in os.walk(os.path.join(ROOT, top)):
            for name in sorted(names):
                if name.endswith((".c", ".h")):
                    path = os.path.join(folder, name)
                    yield os.path.relpath(path, ROOT), open(path, encoding="utf-8").read()


def layer_of(path):
    folder = os.path.dirname(path)
    while folder:
        if folder in LAYERS:
            return folder
        folder = os.path.dirname(folder)
    return None


def own_folder(path, include):
    return os.path.exists(os.path.join(ROOT, os.path.dirname(path), include))


def check_direction(path, text, problems):
    layer = layer_of(path)
    if layer is None:
        if not path.startswith("libflashq/include/"):
            problems.append(f"{path}: belongs to no layer")
        return
    for quote, include in INCLUDE.findall(text):
        if quote != '"':
            continue
        first = include.split("/")[0] if "/" in include else None
        if first is None:
            if not own_folder(path, include):
                problems.append(f'{path}: "{include}" names no layer')
            continue
        allowed = LAYERS[layer]
        if allowed is None:
            if first in BROKER_NEVER:
                problems.append(f'{path}: the broker may not include "{include}"')
        elif first not in allowed:
            problems.append(f'{path}: {layer} may not include "{include}"')
        elif layer == "tools" and first in TOOLS_DOORS and not TOOLS_DOORS[first].search(path):
            problems.append(f'{path}: tools use the public API; "{include}" has another door')


def check_doors(path, text, problems, users):
    for _, include in INCLUDE.findall(text):
        for pattern, door in DOORS.items():
            if re.fullmatch(pattern, include):
                users.setdefault(pattern, set()).add(path)
                if not re.search(door, path):
                    problems.append(f"{path}: <{include}> comes in through {door} only")


def main():
    directions, doors, users, seen = [], [], {}, 0
    for path, text in sources():
        seen += 1
        check_direction(path, text, directions)
        check_doors(path, text, doors, users)
    for pattern in ONE_FILE:
        if len(users.get(pattern, ())) > 1:
            doors.append(f"<{pattern}> is included by more than one file: {sorted(users[pattern])}")
    results = [("sources were found", [] if seen > 10 else [f"only {seen} sources below {ROOT}"]),
               ("layers depend one way", directions), ("third-party headers have one door", doors)]
    print(f"1..{len(results)}")
    for number, (name, problems) in enumerate(results, 1):
        print(f"{'not ok' if problems else 'ok'} {number} - {name}")
        for problem in problems:
            print(f"# {problem}")
    return 0


sys.exit(main())
