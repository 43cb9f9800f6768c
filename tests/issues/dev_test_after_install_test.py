# SPDX-License-Identifier: Apache-2.0
"""`./dev test` in a tree whose build/ was set up for an install, without tests.
Usage: dev_test_after_install_test.py SOURCE MESON"""

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


class DevTest(unittest.TestCase):
    """The script is that of the source tree. The project is a small one that compiles nothing."""

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
        tools = pathlib.Path(folder.name) / "tools"
        tools.mkdir()
        for name, text in ("dpkg-query", "#!/bin/sh\necho installed\n"), ("apt-get", "#!/bin/sh\nexit 1\n"):
            (tools / name).write_text(text)
            (tools / name).chmod(0o755)
        (tools / "meson").symlink_to(MESON)
        self.environment = {**os.environ, "PATH": f"{tools}:{os.environ['PATH']}"}

    def run_in_tree(self, *command):
        return subprocess.run(command, cwd=self.tree, env=self.environment, capture_output=True, text=True, timeout=120)

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


if __name__ == "__main__":
    if shutil.which("ninja") is None:
        print("skipped: ninja is not in PATH")
        sys.exit(SKIPPED)
    del sys.argv[1:]
    unittest.main(verbosity=2)
