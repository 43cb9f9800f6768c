# SPDX-License-Identifier: Apache-2.0
"""Commands of ./dev whose build folder is out of date or in use. Usage: dev_builds_test.py SOURCE MESON"""

import fcntl
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile
import unittest

SOURCE, MESON = pathlib.Path(sys.argv[1]), sys.argv[2]
SKIPPED = 77

PROJECT = """project('small', meson_version: '>=1.0')
if get_option('tests')
  add_test_setup('change', is_default: true)
  test('the only one', find_program('true'))
endif
"""
OPTIONS = "option('tests', type: 'boolean', value: true)\noption('bench', type: 'boolean', value: true)\n"


class InSmallTree(unittest.TestCase):
    """The script is that of the source tree. The project is a small one."""

    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.tree = pathlib.Path(folder.name) / "tree"
        (self.tree / "tests").mkdir(parents=True)
        shutil.copy(SOURCE / "dev", self.tree / "dev")
        for name in "check.sh", "suites.py", "summary.py":
            shutil.copy(SOURCE / "tests" / name, self.tree / "tests" / name)
        (self.tree / "meson.build").write_text(PROJECT)
        (self.tree / "meson_options.txt").write_text(OPTIONS)
        # This test must not install packages, whatever is missing here.
        self.tools = pathlib.Path(folder.name) / "tools"
        self.tools.mkdir()
        self.add_tool("dpkg-query", "echo installed")
        self.add_tool("apt-get", "exit 1")
        (self.tools / "meson").symlink_to(MESON)
        self.environment = {**os.environ, "PATH": f"{self.tools}:{os.environ['PATH']}"}

    def add_tool(self, name, script):
        (self.tools / name).write_text(f"#!/bin/sh\n{script}\n")
        (self.tools / name).chmod(0o755)

    def run_in_tree(self, *command):
        return subprocess.run(command, cwd=self.tree, env=self.environment, capture_output=True, text=True, timeout=120)


class DevTest(InSmallTree):
    def dev_test(self):
        result = self.run_in_tree("./dev", "test")
        self.assertEqual(result.returncode, 0, result.stdout + result.stderr)
        self.assertEqual(result.stdout.splitlines()[-1], "1 passed, 0 failed", result.stdout)
        return result

    def test_tests_are_switched_on(self):
        setup = self.run_in_tree("meson", "setup", "build", "-Dtests=false", "-Dbench=false")
        self.assertEqual(setup.returncode, 0, setup.stdout + setup.stderr)
        self.assertIn("build/ was set up with -Dtests=false; setting -Dtests=true", self.dev_test().stderr)
        self.assertNotIn("-Dtests=false", self.dev_test().stderr)

    def test_a_new_build_says_nothing(self):
        self.assertNotIn("-Dtests", self.dev_test().stderr)

    def test_nothing_is_built_beside_tests(self):
        """Every command that builds is refused, in each build folder."""
        for folder, commands in ("build", ["build", "bench", "demo", "compare", "hosts", "rdma", "gpu", "test", "unprivileged"]), ("build-asan", ["fuzz", "sanitize"]):
            (self.tree / folder).mkdir()
            with open(self.tree / folder / ".tests.lock", "w") as lock:
                fcntl.flock(lock, fcntl.LOCK_EX)
                for command in commands:
                    result = self.run_in_tree("./dev", command)
                    self.assertEqual((result.returncode, result.stdout, result.stderr), (1, "", f"./dev: tests of {folder} are running; wait for their end\n"), command)
                self.assertEqual(os.listdir(self.tree / folder), [".tests.lock"])


class Packages(InSmallTree):
    """Packages that ./dev did not find when it made a build folder, installed since."""

    def setUp(self):
        super().setUp()
        # It looks for a peer as the source tree does for gloo.
        lines = (SOURCE / "bench" / "peers" / "meson.build").read_text().replace("gloo", "peer").splitlines()
        [last] = [i for i, line in enumerate(lines) if line.startswith("if peer.found()")]
        search = [line for line in lines[:last] if line.startswith("peer") and "executable(" not in line]
        (self.tree / "meson.build").write_text("\n".join(["project('small', 'cpp', meson_version: '>=1.0')", "cpp = meson.get_compiler('cpp')", *search,
                                                          lines[last], "  message('the peer is there')", "endif"]))
        (self.tree / "bench" / "peers").mkdir(parents=True)
        (self.tree / "bench" / "peers" / "compare.py").write_text("")
        self.packages = self.tree / "packages"
        (self.packages / "peer").mkdir(parents=True)
        self.install = f"touch {self.packages}/peer/allreduce.h && ${{CXX:-c++}} -shared -x c++ /dev/null -o {self.packages}/libpeer.so"
        self.environment |= {"CPATH": str(self.packages), "LIBRARY_PATH": str(self.packages)}
        # dpkg-query knows the package of the peer when its library is there.
        self.add_tool("dpkg-query", f'case "$*" in *libgloo-dev*) test -e {self.packages}/libpeer.so && echo installed;; *) echo installed;; esac')
        self.add_tool("apt-cache", "")
        self.add_tool("apt-get", self.install)

    def found(self, command):
        result = self.run_in_tree("./dev", command)
        self.assertEqual(result.returncode, 0, result.stdout + result.stderr)
        return "the peer is there" in (self.tree / "build" / "meson-logs" / "meson-log.txt").read_text()

    def test_found_by_the_command_that_installs_it(self):
        self.assertFalse(self.found("build"))
        self.assertTrue(self.found("compare"))

    def test_found_when_another_tree_has_installed_it(self):
        self.assertFalse(self.found("build"))
        subprocess.run(self.install, shell=True, check=True)
        self.assertTrue(self.found("build"))


if __name__ == "__main__":
    if shutil.which("ninja") is None:
        print("skipped: ninja is not in PATH")
        sys.exit(SKIPPED)
    del sys.argv[1:]
    unittest.main(verbosity=2)
