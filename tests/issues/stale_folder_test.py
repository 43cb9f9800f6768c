# SPDX-License-Identifier: Apache-2.0
"""The next rondo run removes what a killed one left, and nothing else.
Usage: stale_folder_test.py PATH_OF_RONDO"""

import os
import pathlib
import subprocess
import sys
import tempfile
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).parents[1] / "tools"))
from program import RONDO, clean_environment, main  # noqa: E402


class StaleFolder(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)

    def start(self):
        """Starts a job whose rank waits for the end of its input."""
        process = subprocess.Popen([RONDO, "run", "-n", "1", "--", "sh", "-c",
                                    'echo "${RONDO_RENDEZVOUS#file://}"; touch "${RONDO_RENDEZVOUS#file://}"; echo ready; read line; exit 0'],
                                   stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
                                   env=clean_environment(TMPDIR=str(self.folder)))
        self.addCleanup(process.stdout.close)
        self.addCleanup(process.wait)
        self.addCleanup(process.kill)
        path = pathlib.Path(process.stdout.readline().strip()).parent
        self.assertEqual(process.stdout.readline(), "ready\n")
        self.assertTrue(path.is_dir())
        return process, path

    def run_one(self):
        subprocess.run([RONDO, "run", "-n", "1", "true"], check=True, timeout=60, env=clean_environment(TMPDIR=str(self.folder)))

    def test_after_sigkill(self):
        process, path = self.start()
        process.kill()
        process.wait(timeout=60)
        process.stdin.close()
        self.assertTrue(path.exists())
        self.run_one()
        self.assertEqual(os.listdir(self.folder), [])

    def test_a_running_job_keeps_its_own(self):
        process, path = self.start()
        self.run_one()
        self.assertEqual(sorted(os.listdir(path)), ["lock", "rendezvous"])
        process.stdin.close()
        self.assertEqual(process.wait(timeout=60), 0)
        self.assertEqual(os.listdir(self.folder), [])

    def test_what_others_made_stays(self):
        def make(name, *files, mode=0o700):
            (self.folder / name).mkdir(mode=mode)
            for file in files:
                (self.folder / name / file).touch()
            return name

        make("rondo-run-output")  # six letters after the dash, as rondo run makes them
        make("rondo-run-result", "lock", "rendezvous", "mine")
        make("rondo-run-public", "lock", mode=0o755)
        make("rondo-run-toolong", "lock")
        (self.folder / "elsewhere").mkdir(mode=0o700)
        (self.folder / "elsewhere" / "lock").touch()
        (self.folder / "rondo-run-linked").symlink_to("elsewhere")
        before = sorted(str(path) for path in self.folder.rglob("*"))
        self.run_one()
        self.assertEqual(sorted(str(path) for path in self.folder.rglob("*")), before)


if __name__ == "__main__":
    main()
