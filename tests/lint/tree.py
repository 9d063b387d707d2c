#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The committed tree holds the project alone: no paths of somebody's machine, nothing left to do, no build
products, no large files, and a licence line in every source.

    tree.py SOURCE_ROOT
"""
import pathlib
import re
import subprocess
import sys

ROOT = pathlib.Path(sys.argv[1]).resolve()
SOURCES = {".c", ".h", ".py", ".sh", ".build", ".yaml"}
BYTES_MAX = 256 << 10
MACHINE = re.compile(r"/(home|root|Users|work)/\w")
LEFT = re.compile(r"\b(TO" r"DO|FIX" r"ME|XX" r"X|HA" r"CK)\b")


def tracked():
    """What git tracks; in a source archive, what is there."""
    if (ROOT / ".git").exists():
        names = subprocess.run(["git", "-c", "safe.directory=*", "-C", str(ROOT), "ls-files", "-z"],
                               check=True, capture_output=True, text=True).stdout
        return [ROOT / name for name in names.split("\0") if name]
    return [path for path in ROOT.rglob("*") if path.is_file()
            and not path.relative_to(ROOT).parts[0].startswith("build") and "__pycache__" not in path.parts]


def name(path):
    return str(path.relative_to(ROOT))


FILES = [path for path in tracked() if path.is_file()]
TEXTS = {}
for path in FILES:
    if "corpus" not in path.parts:
        try:
            TEXTS[path] = path.read_text(encoding="utf-8")
        except UnicodeDecodeError:
            pass


def matching(pattern, but=()):
    return [f"{name(path)}:{number}: {line.strip()[:100]}"
            for path, text in TEXTS.items() if name(path) not in but
            for number, line in enumerate(text.splitlines(), 1) if pattern.search(line)]


def large():
    return [f"{name(path)}: {path.stat().st_size} bytes" for path in FILES if path.stat().st_size > BYTES_MAX]


def products():
    return [name(path) for path in FILES
            if path.open("rb").read(4) == b"\x7fELF" or path.suffix in (".o", ".a", ".so", ".pyc")]


def unlicensed():
    return [name(path) for path, text in TEXTS.items() if (path.suffix in SOURCES or text.startswith("#!"))
            and "SPDX-License-Identifier: Apache-2.0" not in "\n".join(text.splitlines()[:3])]


CHECKS = (("no path of a machine", lambda: matching(MACHINE, ("tests/lint/tree.py",))),
          ("nothing left to do", lambda: matching(LEFT, ("tests/lint/counting.py", "tools/count_tests.py"))),
          ("no large file", large),
          ("no build product", products),
          ("a licence line in every source", unlicensed),
          ("there is a tree", lambda: [] if len(TEXTS) > 100 else [f"only {len(TEXTS)} texts were found"]))

print(f"1..{len(CHECKS)}")
for number, (title, check) in enumerate(CHECKS, 1):
    faults = check()
    print(f"{'not ok' if faults else 'ok'} {number} - {title}")
    for fault in faults:
        print(f"# {fault}")
