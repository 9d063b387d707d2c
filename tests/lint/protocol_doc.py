#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Compares libflashq/wire/PROTOCOL.md with the layouts the codec works from: every message with its
number, and the names of its fields in order. Prints TAP."""
import os
import re
import sys

WIRE = os.path.join(sys.argv[1] if len(sys.argv) > 1 else ".", "libflashq", "wire")
SECTION = re.compile(r"^(?:\*\*(\w+)\*\* \((\d+)\)|Item \d+, (\w+):|(Answer)\b)")
ROW = re.compile(r"^\| (\w+) \| [^|]+ \|")


def read(name):
    with open(os.path.join(WIRE, name), encoding="utf-8") as file:
        return file.read()


def code_layouts():
    """name -> fields, for messages, answers and items."""
    source = read("protocol_layout.c")
    arrays = {}
    for name, body in re.findall(r"struct fq_field (\w+)_fields\[\] = \{(.*?)\n\};", source, re.S):
        arrays[name] = [m[1] or m[2] for m in re.findall(
            r"\b([A-Z_]+)\((?:\d+, fq_\w+, (\w+)|fq_\w+, (\w+))", body)]
    layouts = {}
    for name, layout in re.findall(r"^MESSAGE\((\w+),\s*[^,]+,\s*(\w+)\)", source, re.M):
        layouts[name] = arrays[layout]
    for name in re.findall(r"^ITEM\((\w+)\)", source, re.M):
        layouts[name] = arrays[name]
    return layouts


def code_numbers():
    return {name.lower(): int(number) for name, number in
            re.findall(r"^    FQ_MSG_(\w+) = (\d+)", read("protocol.h"), re.M)}


def documented():
    layouts, numbers, message, section = {}, {}, None, None
    for line in read("PROTOCOL.md").splitlines():
        start = SECTION.match(line)
        if start:
            name, number, item, _ = start.groups()
            if name:
                message, numbers[name] = name, int(number)
            section = item or name or message + "_answer"
        elif line.startswith("#"):
            section = None
        row = ROW.match(line)
        if row and section and row[1] not in ("field", "at", "type"):
            layouts.setdefault(section, []).append(row[1])
    return layouts, numbers


def compare(what, code, document):
    problems = [f"{what} {name}: code {code.get(name)}, PROTOCOL.md {document.get(name)}"
                for name in sorted(set(code) | set(document)) if code.get(name) != document.get(name)]
    for problem in problems:
        print("#", problem)
    return not problems and bool(code)


def main():
    layouts, numbers = documented()
    results = [("message numbers are documented", compare("message", code_numbers(), numbers)),
               ("fields are documented in their order", compare("fields of", code_layouts(), layouts))]
    print(f"1..{len(results)}")
    for index, (name, ok) in enumerate(results, 1):
        print(f"{'ok' if ok else 'not ok'} {index} - {name}")
    return 0 if all(ok for _, ok in results) else 1


if __name__ == "__main__":
    sys.exit(main())
