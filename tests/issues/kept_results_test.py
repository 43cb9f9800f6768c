# SPDX-License-Identifier: Apache-2.0
"""The files of rondo bench are whole documents, and keep what was measured.
Usage: kept_results_test.py PATH_OF_RONDO"""

import csv
import json
import os
import pathlib
import select
import signal
import stat
import subprocess
import sys
import tempfile
import threading
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).parents[1] / "tools"))
from program import COLUMNS, QUICK, RONDO, clean_environment, main, ranks_of, rondo, rows  # noqa: E402

SHORT = ["bench", "--ranks", "2", "-b", "8", "-e", "8", *QUICK]


class KeptResults(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)
        self.json, self.csv = self.folder / "out.json", self.folder / "out.csv"

    def bench(self, *arguments, status=0):
        result = rondo(*SHORT, *arguments)
        self.assertEqual(result.returncode, status, result.stdout + result.stderr)
        return result

    def started(self):
        """Starts a long benchmark, and returns once it has printed its first row."""
        process = subprocess.Popen([RONDO, "bench", "--ranks", "3", "-b", "8", "-e", "512K", "-i", "8", *QUICK, "--json", self.json,
                                    "--csv", self.csv], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
                                   env=clean_environment())
        self.addCleanup(process.stdout.close)
        self.addCleanup(process.stderr.close)
        while True:
            line = process.stdout.readline()
            self.assertNotEqual(line, "")
            if rows(line):
                return process

    def check_kept(self, why):
        document = json.loads(self.json.read_text())
        self.assertFalse(document["complete"])
        self.assertRegex(document["error"], why)
        self.assertGreaterEqual(len(document["results"]), 2)
        self.assertEqual(document["results"][0]["bytes"], 8)
        *table, last = self.csv.read_text().splitlines()
        self.assertRegex(last, f"^# incomplete: .*{why}")
        self.assertGreaterEqual(len(list(csv.DictReader(table))), 2)
        self.assertEqual(sorted(os.listdir(self.folder)), ["out.csv", "out.json"])

    def test_a_rank_dies(self):
        process = self.started()
        os.kill(ranks_of(process)[1], signal.SIGKILL)
        process.communicate(timeout=60)
        self.assertEqual(process.returncode, 128 + 9)
        self.check_kept("rank 1")

    def test_everything_is_killed(self):
        process = self.started()
        handles = [os.pidfd_open(rank) for rank in ranks_of(process)]
        process.kill()
        process.wait(timeout=60)
        for handle in handles:  # the ranks die with it; until then rank 0 may be writing
            self.assertTrue(select.select([handle], [], [], 60)[0])
            os.close(handle)
        for name in os.listdir(self.folder):  # the temporary file that was being written
            if name.endswith(".part"):
                os.unlink(self.folder / name)
        self.check_kept("has not ended")

    def test_nobody_reads_the_table(self):
        process = self.started()
        process.stdout.close()
        self.assertEqual(process.wait(timeout=60), 128 + 13)
        self.check_kept("the standard output cannot be written: Broken pipe")

    def test_before_the_first_row_nothing_is_touched(self):
        self.json.write_text("old")
        result = rondo(*SHORT, "--json", self.json, "--csv", self.csv, RONDO_ALGORITHM="none such")
        self.assertNotEqual(result.returncode, 0)
        self.assertEqual(self.json.read_text(), "old")
        self.assertEqual(os.listdir(self.folder), ["out.json"])

    def test_complete(self):
        self.bench("--json", self.json, "--csv", self.csv)
        document = json.loads(self.json.read_text())
        self.assertEqual((document["complete"], "error" in document, len(document["results"])), (True, False, 2))
        with self.csv.open() as file:
            self.assertEqual(len(list(csv.DictReader(file))), 2)

    def test_a_full_disk(self):
        result = self.bench("--json", "/dev/full", status=3)
        self.assertIn("/dev/full: No space left on device", result.stderr)

    def test_what_goes_wrong_with_one_file_does_not_cost_the_other_its_rows(self):
        self.bench("--json", "/dev/full", "--csv", self.csv, status=3)
        *table, last = self.csv.read_text().splitlines()
        self.assertRegex(last, "^# incomplete: .*No space left on device")
        self.assertEqual(len(list(csv.DictReader(table))), 2)
        # When both fail, both are told.
        full = self.folder / "full.csv"
        full.symlink_to("/dev/full")
        result = self.bench("--json", "/dev/full", "--csv", full, status=3)
        for name in "/dev/full", full:
            self.assertIn(f"cannot write {name}: No space left on device", result.stderr)
        # A complete file stays complete when a later file fails.
        self.bench("--json", self.json, "--write-constants", "/dev/full", status=3)
        self.assertTrue(json.loads(self.json.read_text())["complete"])

    def test_a_pipe(self):
        pipe = self.folder / "pipe"
        os.mkfifo(pipe)
        texts = []
        reader = threading.Thread(target=lambda: texts.append(pipe.read_text()))
        reader.start()
        self.bench("--json", pipe)
        reader.join(timeout=60)
        self.assertTrue(json.loads(texts[0])["complete"])

    def test_a_folder_where_nothing_can_be_made(self):
        """There the file grows in place."""
        self.json.write_text("old and longer than nothing" * 100)
        self.json.chmod(0o666)
        self.folder.chmod(0o555)
        # Root may make files everywhere, unless it has no capabilities. Another user might not be
        # allowed to enter this tree.
        prefix = ["setpriv", "--bounding-set=-all", "--inh-caps=-all"] if os.geteuid() == 0 else []
        result = subprocess.run([*prefix, RONDO, *SHORT, "--json", self.json], capture_output=True, text=True, timeout=120,
                                env=clean_environment())
        self.folder.chmod(0o755)
        self.assertEqual(result.returncode, 0, result.stderr)
        self.assertTrue(json.loads(self.json.read_text())["complete"])
        self.assertEqual(os.listdir(self.folder), ["out.json"])

    def test_links_and_modes_stay(self):
        self.json.write_text("old")
        self.json.chmod(0o640)
        link = self.folder / "link"
        link.symlink_to(self.json)
        self.bench("--json", link)
        self.assertTrue(link.is_symlink())
        self.assertEqual(stat.S_IMODE(self.json.stat().st_mode), 0o640)
        self.assertTrue(json.loads(self.json.read_text())["complete"])

    def test_standard_output(self):
        document = json.loads(self.bench("--json", "-").stdout)
        self.assertLessEqual(set(COLUMNS), set(document["results"][0]))
        lines = list(csv.DictReader(self.bench("--csv", "-").stdout.splitlines()))
        self.assertEqual([line["bytes"] for line in lines], ["8", "8"])
        self.assertIn("host", json.loads(self.bench("--write-constants", "-").stdout))
        self.assertEqual(os.listdir(self.folder), [])

    def test_two_results_for_one_place(self):
        for first, second in (self.json, self.json), ("-", "-"), (self.json, self.folder / "." / "out.json"), ("-", "/dev/stdout"):
            result = rondo(*SHORT, "--json", first, "--csv", second)
            self.assertEqual((result.returncode, result.stdout), (2, ""))
            self.assertIn(f"--json {first} and --csv {second}: both name the same output", result.stderr)
        self.assertEqual(os.listdir(self.folder), [])


if __name__ == "__main__":
    main()
