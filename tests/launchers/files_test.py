# SPDX-License-Identifier: Apache-2.0
"""The files of examples/launchers as text: scripts that shells accept, a container recipe whose
commands are those of the README and ./dev, and a page that knows all of them.
Usage: files_test.py PATH_OF_RONDO [unittest arguments]"""

import os
import re
import shutil
import subprocess
import sys
import unittest
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
EXAMPLES = ROOT / "examples" / "launchers"
PAGE = ROOT / "docs" / "launchers.md"
SCRIPTS = sorted([*EXAMPLES.glob("*.sh"), *EXAMPLES.glob("*.sbatch")])


class Scripts(unittest.TestCase):
    def test_bash_reads_them(self):
        self.assertTrue(SCRIPTS)
        for script in SCRIPTS:
            with self.subTest(script=script.name):
                self.assertTrue(os.access(script, os.X_OK))
                done = subprocess.run(["bash", "-n", script], capture_output=True, text=True)
                self.assertEqual((done.returncode, done.stderr), (0, ""))

    @unittest.skipUnless(shutil.which("shellcheck"), "shellcheck is not installed (Debian: shellcheck)")
    def test_shellcheck(self):
        done = subprocess.run(["shellcheck", *SCRIPTS], capture_output=True, text=True)
        self.assertEqual(done.returncode, 0, done.stdout)


class Containerfile(unittest.TestCase):
    """No container is built here."""

    text = (EXAMPLES / "Containerfile").read_text().replace("\\\n", " ")

    def packages(self, stage: str) -> set[str]:
        """The packages that a stage installs."""
        part = re.search(rf"^FROM \S+ AS {stage}$(.*?)(?=^FROM |\Z)", self.text, re.MULTILINE | re.DOTALL)[1]
        return set(re.search(r"--no-install-recommends ([^&\n]*)", part)[1].split())

    def test_packages_of_the_build(self):
        """Those with which ./dev builds."""
        own = re.search(r"^build_packages=\((.*)\)$", (ROOT / "dev").read_text(), re.MULTILINE)[1]
        self.assertEqual(self.packages("build"), set(own.split()))

    def test_build(self):
        """The commands of the README, in another folder."""
        commands = re.search(r"^RUN (meson setup.*)$", self.text, re.MULTILINE)[1]
        self.assertIn(f"    {commands.replace('/build', 'build-install')}\n", (ROOT / "README.md").read_text())

    @unittest.skipUnless(shutil.which("dpkg"), "only on Debian")
    def test_packages_of_the_image(self):
        """All that the program loads, except what every image has."""
        done = subprocess.run(["ldd", PROGRAM], capture_output=True, text=True, check=True)
        needed = set()
        for path in re.findall(r"=> (/\S+)", done.stdout):
            owner = subprocess.run(["dpkg", "-S", os.path.realpath(path)], capture_output=True, text=True)
            if owner.returncode == 0:
                needed.add(owner.stdout.split(":")[0])
        self.assertLessEqual(needed - {"libc6", "libgcc-s1"}, self.packages("rondo"))


    def test_what_git_ignores_stays_out(self):
        """The builds of a machine have gigabytes."""
        left_out = {line.strip("/") for line in (ROOT / ".dockerignore").read_text().split()}
        ignored = {line.strip("/") for line in (ROOT / ".gitignore").read_text().split()}
        self.assertLessEqual({".git"} | ignored, {line.removeprefix("**/") for line in left_out})


class Page(unittest.TestCase):
    text = PAGE.read_text()

    def test_names_every_example(self):
        for file in EXAMPLES.iterdir():
            self.assertIn(f"../examples/launchers/{file.name})", self.text)

    def test_links_lead_somewhere(self):
        for link in re.findall(r"\]\(([^)#:]+)", self.text):
            self.assertTrue((PAGE.parent / link).exists(), link)

    def test_commands_are_there(self):
        """A script that the page starts has this name."""
        names = {file.name for file in EXAMPLES.iterdir()}
        used = set(re.findall(r"\./([\w-]+\.(?:sh|sbatch))", self.text))
        self.assertTrue(used)
        self.assertLessEqual(used, names)


if __name__ == "__main__":
    PROGRAM = sys.argv.pop(1)
    unittest.main(verbosity=2)
