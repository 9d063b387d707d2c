#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Manual pages agree with the programs: no page has a formatting fault, and every option that
`flashq help` advertises and every key of broker and client has its place in a page.

    man_pages.py SOURCE_ROOT FLASHQ FLASHQD
"""
import pathlib
import re
import subprocess
import sys

ROOT, FLASHQ, FLASHQD = pathlib.Path(sys.argv[1]), sys.argv[2], sys.argv[3]
PAGES = ROOT / "docs" / "man"
FAMILY_PAGE = {"query": "replay", "partition": "cluster"}


def text(path):
    """A page without its escapes of hyphens and its font changes."""
    return re.sub(r"\\f.", "", path.read_text(encoding="utf-8").replace("\\-", "-"))


def output(*command):
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout


def formatting_faults():
    found = []
    for page in sorted(PAGES.iterdir()):
        done = subprocess.run(["groff", "-man", "-t", "-ww", "-z", "-Tutf8", str(page)],
                              capture_output=True, text=True, check=False)
        if done.returncode != 0 or done.stderr:
            found.append(f"{page.name}: {done.stderr.strip()[:300]}")
    return found


def advertised(help_text):
    options = help_text.split("Options:\n", 1)
    if len(options) == 1:
        return []
    return re.findall(r"--([a-z-]+)", "\n".join(
        line[:34] for line in options[1].split("\n\n", 1)[0].splitlines()))


def missing_options():
    found = []
    overview = output(FLASHQ, "help")
    listing = overview.split("Commands:\n", 1)[1].split("\n\n", 1)[0]
    common = text(PAGES / "flashq.1")
    for line in listing.splitlines():
        command = line[2:27].strip()
        if command.startswith(("help", "version")):
            continue
        family = command.split()[0]
        page = PAGES / f"flashq-{FAMILY_PAGE.get(family, family)}.1"
        if not page.exists():
            found.append(f"{command}: {page.name} does not exist")
            continue
        words = text(page)
        if not re.search(rf"{command.split()[-1]}\b", words):
            found.append(f"{command}: not in {page.name}")
        found += [f"{command}: --{name} is not in {page.name}"
                  for name in advertised(output(FLASHQ, "help", *command.split()))
                  if not re.search(rf"--{name}\b", words)]
    found += [f"--{name} is not in flashq.1"
              for name in re.findall(r"--([a-z-]+)", overview.split("every command:\n", 1)[1])
              if f"--{name}" not in common]
    return found


def missing_keys():
    found = []
    broker = re.findall(r"^  ([a-z.]+) \(", output(FLASHQD, "--help"), re.M)
    client = re.findall(r'\.name = "([a-z.]+)"',
                        (ROOT / "libflashq" / "client" / "config.c").read_text(encoding="utf-8"))
    for page, keys in (("flashqd.8", broker), ("flashq-client.5", client)):
        words = re.sub(r"^\.SH COUNTERS$.*?(?=^\.SH )", "", text(PAGES / page), flags=re.M | re.S)  # named like keys
        there = re.findall(r"^\.B ([a-z.]+)$", words, re.M)
        found += [f"{key} is not in {page}" for key in keys if key not in there]
        found += [f"{page}: there is no key {key}" for key in there
                  if "." in key and key not in keys]
        if len(keys) < 10:
            found.append(f"{page}: only {len(keys)} keys were found to compare")
    return found


def uninstalled():
    listed = (ROOT / "docs" / "meson.build").read_text(encoding="utf-8")
    return [page.name for page in PAGES.iterdir() if f"man/{page.name}'" not in listed]


CHECKS = (("no page has a formatting fault", formatting_faults),
          ("every option is in its page", missing_options),
          ("every key is in its page, and no other", missing_keys),
          ("every page is installed", uninstalled))

print(f"1..{len(CHECKS)}")
for number, (name, check) in enumerate(CHECKS, 1):
    faults = check()
    print(f"{'not ok' if faults else 'ok'} {number} - {name}")
    for fault in faults:
        print(f"# {fault}")
