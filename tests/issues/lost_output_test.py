# SPDX-License-Identifier: Apache-2.0
"""The output of the rondo program is written, or its status and a message say that it is not.
Usage: lost_output_test.py PATH_OF_RONDO"""

import os
import pathlib
import subprocess
import sys
import tempfile
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).parents[1] / "tools"))
from program import QUICK, RONDO, clean_environment, main  # noqa: E402

BENCH = ["bench", "--ranks", "2", "-b", "8", "-e", "1K", *QUICK]
PRINTING = [["info"], ["plan", "--ranks", "2"], ["plan", "--explain"], ["plan", "--explain", "--json", "-"], ["plan", "--simulate"],
            ["plan", "--check", "broadcast", "--ranks", "2"], ["--help"], ["--version"], ["bench", "--help"], BENCH]


class LostOutput(unittest.TestCase):
    def rondo(self, arguments, stdout, **more):
        result = subprocess.run([RONDO, *arguments], stdout=stdout, stderr=subprocess.PIPE, text=True, timeout=120,
                                env=clean_environment(), **more)
        return result.returncode, result.stderr

    def without_reader(self, arguments):
        reader, writer = os.pipe()
        os.close(reader)
        try:
            return self.rondo(arguments, writer)
        finally:
            os.close(writer)

    def test_a_full_disk(self):
        for arguments in PRINTING:
            with self.subTest(arguments=arguments), open("/dev/full", "w") as full:
                status, errors = self.rondo(arguments, full)
                self.assertEqual(status, 3, errors)
                self.assertRegex(errors, r"\Arondo[^\n]*: the standard output cannot be written: No space left on device\n\Z")

    def test_a_closed_reader(self):
        """It ends with the status of a program that SIGPIPE killed, and without a message."""
        for arguments in PRINTING:
            with self.subTest(arguments=arguments):
                self.assertEqual(self.without_reader(arguments), (128 + 13, ""))

    def test_a_closed_descriptor(self):
        for arguments in ["info"], BENCH:
            result = subprocess.run(["sh", "-c", 'exec "$0" "$@" >&-', RONDO, *arguments], stderr=subprocess.PIPE, text=True,
                                    timeout=120, env=clean_environment())
            self.assertEqual(result.returncode, 3)
            self.assertIn("the standard output cannot be written: Bad file descriptor", result.stderr)

    def test_nobody_reads_the_messages(self):
        with open("/dev/full", "w") as full:
            for arguments, status in (["run", "-n", "2", "false"], 1), (["bench", "--bogus"], 2), (["run", "-n", "1", "/nonexistent/program"], 127):
                result = subprocess.run([RONDO, *arguments], stderr=full, stdout=subprocess.PIPE, timeout=120, env=clean_environment())
                self.assertEqual(result.returncode, status, arguments)

    def test_labels_on_a_full_disk(self):
        """The ranks go on, because no job ends for a lost line. But the loss is reported."""
        with open("/dev/full", "w") as full:
            script = "for i in 1 2 3 4; do echo line; done; exit 0"
            status, errors = self.rondo(["run", "-n", "2", "-l", "--", "sh", "-c", script], full)
            self.assertEqual(status, 3)
            self.assertEqual(errors.count("No space left on device"), 1, errors)
            self.assertEqual(self.rondo(["run", "-n", "1", "-l", "--", "sh", "-c", "echo line; exit 7"], full)[0], 7)

    def test_labels_without_a_reader(self):
        """The ranks get SIGPIPE at their next line, as without labels, and leave nothing behind."""
        with tempfile.TemporaryDirectory() as folder:
            process = subprocess.Popen([RONDO, "run", "-n", "2", "-l", "--", "sh", "-c", "while echo line; do :; done"],
                                       stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
                                       env=clean_environment(TMPDIR=folder))
            self.assertRegex(process.stdout.readline(), r"\[[01]\] line\n")
            process.stdout.close()
            self.assertEqual(process.wait(timeout=60), 128 + 13)
            self.assertEqual(process.stderr.read(), "")
            process.stderr.close()
            self.assertEqual(os.listdir(folder), [])


if __name__ == "__main__":
    main()
