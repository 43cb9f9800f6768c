# SPDX-License-Identifier: Apache-2.0
"""rondo bench sendrecv, with all ranks and in one direction.
Usage: sendrecv_test.py PATH_OF_RONDO [unittest arguments]"""

import csv
import io
import itertools
import json
import unittest

from program import QUICK, RONDO, drawn_of, main, rondo, rows

TRANSPORTS = [["--transport", "shm"], ["--transport", "shm", "--allocate"], ["--transport", "tcp"], ["--transport", "tcp", "--allocate"]]
# Below and above the largest message that is sent before its receive is called.
SIZES = ["-b", 12, "-e", "1200000", "-f", 100]
LATENCY = [f"latency_{name}_us" for name in ("mean", "min", "p50", "p90", "p99", "max")]


class SendReceive(unittest.TestCase):
    def bench(self, *arguments, status=0):
        result = rondo("bench", "sendrecv", *arguments)
        self.assertEqual(result.returncode, status, result.stdout + result.stderr)
        return result

    def document(self, *arguments):
        return json.loads(self.bench(*arguments, "--json", "-").stdout)

    def check_row(self, row):
        self.assertEqual((row["wrong"], row["in_place"], row["op"], row["algorithm"]), (0, False, "none", "messages"))
        self.assertEqual(row["bytes"], row["count"] * 4)
        rate = row["bytes"] / row["p50_us"] / 1e3
        self.assertAlmostEqual(row["algbw"], rate, delta=1e-6 + 0.01 * rate)  # the record rounds both
        self.assertEqual(row["busbw"], row["algbw"])
        self.assertLessEqual(0, row["min_us"])
        self.assertLessEqual(row["min_us"], row["p50_us"])
        self.assertLessEqual(row["p50_us"], row["p99_us"])

    def test_every_rank_to_the_next(self):
        for ranks, flags in drawn_of(itertools.product((1, 2, 3, 4), TRANSPORTS), 5):
            with self.subTest(ranks=ranks, flags=flags):
                document = self.document("--ranks", ranks, *SIZES, *flags, *QUICK)
                self.assertEqual((document["operations"], document["ranks"]), (["sendrecv"], ranks))
                self.assertEqual(document["transport"], flags[1] if ranks > 1 else "none")
                self.assertEqual([row["bytes"] for row in document["results"]], [12, 1200, 120000])
                for row in document["results"]:
                    self.assertEqual((row["operation"], row["agg_iters"]), ("sendrecv", 1))
                    self.assertFalse({"window", "messages_per_second", *LATENCY} & set(row))
                    self.check_row(row)

    def test_table(self):
        result = self.bench("--ranks", 3, "-b", "1K", "-e", "4K", "-n", 5, "-m", 3)
        self.assertIn(": sendrecv over shm, 3 ranks, 3 calls in a row, inputs written anew\n", result.stdout)
        for row in rows(result.stdout):
            self.assertEqual(len(row), 13 + 3, row)  # the last three say who is late
            self.assertEqual(row[1:6], ["f32", "none", "-", "-", "messages"])
            self.assertEqual(row[12], "0")
        self.assertIn("# Wrong elements       : 0 OK", result.stdout)
        self.assertRegex(result.stdout, r"# Ceiling              : [0-9.]+ to [0-9.]+ GB/s; ")

    def test_every_type(self):
        result = self.bench("-d", "all", "--ranks", 2, "-b", "40K", "-e", "40K", *QUICK)
        self.assertEqual(len(rows(result.stdout)), 14)
        self.assertIn("# Wrong elements       : 0 OK", result.stdout)

    def test_one_way(self):
        windows = ([], 64), (["--window", 1], 1), (["--window", 5, "-c", 0], 5)
        for flags, (more, window) in drawn_of(itertools.product(TRANSPORTS, windows), 4):
            with self.subTest(flags=flags, window=window):
                document = self.document("--one-way", *more, *SIZES, *flags, *QUICK)
                self.assertEqual((document["operations"], document["ranks"]), (["sendrecv_one_way"], 2))
                self.assertEqual(len(document["results"]), 3)
                for row in document["results"]:
                    self.assertEqual((row["operation"], row["window"]), ("sendrecv_one_way", window))
                    self.assertFalse({"agg_iters", "messages_per_second"} & set(row))
                    self.assertEqual([time is None for time in row["rank_p50_us"]], [False, True])
                    self.check_row(row)
                    self.assertGreater(row["latency_min_us"], 0)
                    self.assertLessEqual(row["latency_min_us"], row["latency_p50_us"])
                    self.assertLessEqual(row["latency_p50_us"], row["latency_p99_us"])

    def test_one_way_table(self):
        result = self.bench("--one-way", "--window", 7, "-b", "1K", "-e", "4K", "-n", 5, "--transport", "tcp")
        self.assertIn(": sendrecv_one_way over tcp, 2 ranks, window of 7, inputs written anew\n", result.stdout)
        self.assertIn("# stream: rank 0 sends 7 messages to rank 1 at once", result.stdout)
        self.assertRegex(result.stdout, r"#.* %ceil #wrong +algorithm +latency +p50 +p99\n#.* sockets +\(us\) +\(us\) +\(us\)\n")
        for row in rows(result.stdout):
            self.assertEqual(len(row), 5 + 8 + 3, row)
            self.assertEqual(row[11], "0")

    def test_one_way_csv(self):
        lines = list(csv.DictReader(io.StringIO(self.bench("--one-way", "-b", 64, "-e", 64, *QUICK, "--csv", "-").stdout)))
        self.assertEqual((lines[0]["operation"], lines[0]["window"], lines[0]["agg_iters"]), ("sendrecv_one_way", "64", ""))
        self.assertGreater(float(lines[0]["latency_p50_us"]), 0)

    def test_no_bytes(self):
        for flags in [], ["--one-way"]:
            self.assertEqual(len(rows(self.bench("--ranks", 2, "-b", 0, "-e", 0, *QUICK, *flags).stdout)), 1)

    def test_min_bandwidth(self):
        for flags, name in ([], "sendrecv"), (["--one-way"], "sendrecv_one_way"):
            result = self.bench("--ranks", 2, "-b", "1K", "-e", "1K", "--min-bandwidth", "1e6", *QUICK, *flags, status=1)
            self.assertIn(f"rondo bench: {name} 1 KiB f32: ", result.stderr)

    def test_under_rondo_run(self):
        result = rondo("run", "-n", 2, "--", RONDO, "bench", "sendrecv", "--one-way", "-b", "1K", "-e", "1K", *QUICK)
        self.assertEqual((result.returncode, len(rows(result.stdout))), (0, 1), result.stdout + result.stderr)
        result = rondo("run", "-n", 3, "--", RONDO, "bench", "sendrecv", "--one-way", "-b", "1K", "-e", "1K", *QUICK)
        self.assertEqual((result.returncode, result.stdout), (2, ""))
        self.assertIn("there must be 2 ranks, not 3", result.stderr)

    def test_bad_input(self):
        cases = {
            ("sendrecv", "--one-way", "--ranks", "3"): ["--one-way", "there must be 2 ranks, not 3"],
            ("sendrecv", "--one-way", "--ranks", "1"): ["--one-way", "there must be 2 ranks, not 1"],
            ("sendrecv", "--one-way", "-m", "4"): ["--agg_iters 4", "--window"],
            ("sendrecv", "--one-way", "--window", "0"): ["--window 0", "1 to 65536"],
            ("sendrecv", "--one-way", "--window", "65536", "-e", "1G"): ["--maxbytes 1 GiB, --window 65536", "this machine has"],
            ("sendrecv", "--window", "4"): ["--window 4", "only with --one-way"],
            ("sendrecv", "-o", "sum"): ["--op sum", "reduces nothing"],
            ("sendrecv", "-r", "0"): ["--root 0", "no root"],
            ("sendrecv", "--algorithm", "ring"): ["--algorithm ring", "no algorithm"],
            ("all_reduce", "--one-way"): ["--one-way", "only for rondo bench sendrecv"],
            ("all_reduce", "--window", "4"): ["--window", "only for sendrecv --one-way, bandwidth, bibandwidth and rate"],
            ("sendrec",): ["operation sendrec", "did you mean sendrecv?"],
        }
        for arguments, parts in cases.items():
            with self.subTest(arguments=arguments):
                result = rondo("bench", *arguments)
                self.assertEqual((result.returncode, result.stdout), (2, ""))
                for part in parts:
                    self.assertIn(part, result.stderr)


if __name__ == "__main__":
    main()
