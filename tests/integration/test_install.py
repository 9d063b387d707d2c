# SPDX-License-Identifier: Apache-2.0
"""What a user of the library gets: a header for C99 and C++11, no foreign symbols, pkg-config that works."""
import glob
import os
import subprocess
import tempfile
import unittest

import harness
import tap

INCLUDE = os.path.join(harness.SOURCE, "libflashq", "include")
PROGRAM = """#include <stdio.h>
#include <flashq/flashq.h>
int main(void) { printf("%s\\n", flashq_version()); return 0; }
"""


# A sanitized library needs a program that brings the sanitizer's runtime.
SANITIZE = os.environ.get("FLASHQ_SANITIZE", "none")
COMPILER = ["gcc"] if SANITIZE == "none" else ["clang", f"-fsanitize={SANITIZE}"]


def run(*command, **options):
    done = subprocess.run(command, capture_output=True, text=True, timeout=300, check=False, **options)
    if done.returncode != 0:
        raise AssertionError(f"{' '.join(command)}: {done.stdout}{done.stderr}")
    return done.stdout


class Header(unittest.TestCase):
    """case 44"""

    def compiles(self, compiler, standard, suffix):
        with tempfile.TemporaryDirectory() as folder:
            source = os.path.join(folder, "program" + suffix)
            with open(source, "w", encoding="utf-8") as text:
                text.write(PROGRAM)
            run(compiler, f"-std={standard}", "-Wall", "-Wextra", "-Wpedantic", "-Werror", "-I", INCLUDE,
                "-fsyntax-only", source)

    def test_compiles_as_c99_and_c11(self):
        for compiler in ("gcc", "clang"):
            for standard in ("c99", "c11"):
                self.compiles(compiler, standard, ".c")

    def test_compiles_as_cpp11_and_cpp17(self):
        for standard in ("c++11", "c++17"):
            self.compiles("g++", standard, ".cc")


class Library(unittest.TestCase):
    """case 44"""

    def test_exports_only_its_own_symbols(self):
        library = os.path.join(harness.BUILD, "libflashq", "api", "libflashq.so")
        names = [line.split()[-1].split("@")[0] for line in
                 run("nm", "-D", "--defined-only", library).splitlines()]
        foreign = [name for name in names if not name.startswith("flashq_") and name != "FLASHQ_0.1"]
        self.assertEqual(foreign, [])
        with open(os.path.join(INCLUDE, "flashq", "flashq.h"), encoding="utf-8") as text:
            header = text.read()
        for name in names:
            if name.startswith("flashq_"):
                self.assertIn(name + "(", header, "exported but not declared")

    def test_pkg_config_after_install(self):
        with tempfile.TemporaryDirectory() as folder:
            run("meson", "install", "-C", harness.BUILD, "--no-rebuild", "--destdir", folder)
            pc = glob.glob(folder + "/**/flashq.pc", recursive=True)
            self.assertEqual(len(pc), 1, "one flashq.pc")
            self.assertEqual(len(glob.glob(folder + "/**/flashqConfig.cmake", recursive=True)), 1)
            headers = glob.glob(folder + "/**/include/flashq/*.h", recursive=True)
            self.assertEqual(sorted(os.path.basename(path) for path in headers), ["error.h", "flashq.h"])
            environment = dict(os.environ, PKG_CONFIG_PATH=os.path.dirname(pc[0]),
                               PKG_CONFIG_SYSROOT_DIR=folder)
            source = os.path.join(folder, "program.c")
            with open(source, "w", encoding="utf-8") as text:
                text.write(PROGRAM)
            flags = run("pkg-config", "--cflags", "--libs", "flashq", env=environment).split()
            program = os.path.join(folder, "program")
            run(*COMPILER, source, "-o", program, *flags)
            library = os.path.dirname(glob.glob(folder + "/**/libflashq.so", recursive=True)[0])
            self.assertEqual(run(program, env=dict(os.environ, LD_LIBRARY_PATH=library)), "0.1.0\n")

    def test_static_library_links(self):
        with tempfile.TemporaryDirectory() as folder:
            source, program = os.path.join(folder, "program.c"), os.path.join(folder, "program")
            with open(source, "w", encoding="utf-8") as text:
                text.write(PROGRAM)
            archive = os.path.join(harness.BUILD, "libflashq", "api", "libflashq.a")
            run(*COMPILER, source, "-I", INCLUDE, archive, "-llz4", "-lzstd", "-pthread", "-o", program)
            self.assertEqual(run(program), "0.1.0\n")


if __name__ == "__main__":
    tap.main()
