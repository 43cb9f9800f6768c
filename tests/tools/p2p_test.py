# SPDX-License-Identifier: Apache-2.0
"""rondo bench latency, bandwidth, bibandwidth, rate and sendrecv, and the bounds of latency.
Usage: p2p_test.py PATH_OF_RONDO [unittest arguments]"""

import csv
import io
import itertools

from program import QUICK, RONDO, BenchTest, drawn_of, main, rondo, rows

TRANSPORTS = [["--transport", "shm"], ["--transport", "shm", "--allocate"], ["--transport", "tcp"], ["--transport", "tcp", "--allocate"]]
# Below and above the largest message that is sent before its receive is called.
SIZES = ["--sizes", "12,1200,120000"]
LATENCY = [f"latency_{name}_us" for name in ("mean", "min", "p50", "p90", "p99", "max")]
# Messages that pass in the time of one, by operation and ranks.
STREAMS = {("bandwidth", 2): 1, ("bibandwidth", 2): 2, ("rate", 2): 1, ("rate", 4): 2}


class PointToPoint(BenchTest):
    def results(self, *arguments):
        return self.document(*arguments)["results"]

    def check_row(self, row):
        self.assertEqual((row["wrong"], row["in_place"], row["op"], row["algorithm"]), (0, False, "none", "messages"))
        self.assertEqual(row["bytes"], row["count"] * 4)
        names = ["min_us", "p50_us", "p90_us", "p99_us", "max_us"]
        self.assertEqual(sorted(names, key=lambda name: row[name]), names)
        # Ranks of sendrecv may find that their message has come.
        self.assertGreater(row["min_us"], -1 if row["operation"] == "sendrecv" else 0)

    def check_rate(self, row, streams=1):
        """The record rounds all of them."""
        per_second = streams * 1e6 / row["p50_us"]
        self.assertAlmostEqual(row["algbw"], per_second * row["bytes"] / 1e9, delta=1e-6 + 0.01 * per_second * row["bytes"] / 1e9)
        self.assertEqual(row["busbw"], row["algbw"])
        return per_second

    def test_windows(self):
        windows = (64, []), (5, ["-c", 0, "--window", 5]), (1, ["--window", 1])
        cases = [case for case in itertools.product(STREAMS, TRANSPORTS, windows) if case[2][0] == 64 or "--allocate" not in case[1]]
        for (operation, ranks), flags, (window, more) in drawn_of(cases, 5):
            with self.subTest(operation=operation, ranks=ranks, flags=flags, window=window):
                found = self.results(operation, "--ranks", ranks, *more, *SIZES, *flags, *QUICK)
                self.assertEqual([row["bytes"] for row in found], [12, 1200, 120000])
                for row in found:
                    self.check_row(row)
                    self.check_window(row, operation, ranks, window)

    def check_window(self, row, operation, ranks, window):
        streams = STREAMS[operation, ranks]
        self.assertEqual((row["operation"], row["ranks"], row["window"]), (operation, ranks, window))
        self.assertNotIn("agg_iters", row)
        self.assertNotIn("latency_p50_us", row)
        per_second = self.check_rate(row, streams)
        self.assertAlmostEqual(row["messages_per_second"], per_second, delta=0.1 + 0.01 * per_second)
        senders = 2 if operation == "bibandwidth" else ranks // 2
        self.assertEqual([time is not None for time in row["rank_p50_us"]], [rank < senders for rank in range(ranks)])

    def test_latency(self):
        for flags in TRANSPORTS:
            with self.subTest(flags=flags):
                found = self.results("latency", *SIZES, *flags, *QUICK)
                self.assertEqual([row["bytes"] for row in found], [12, 1200, 120000])
                for row in found:
                    self.check_row(row)
                    self.assertEqual((row["ranks"], row["agg_iters"], row["algbw"], row["busbw"]), (2, 1, 0, 0))
                    self.assertNotIn("messages_per_second", row)
                    self.assertEqual(row["rank_p50_us"][1], None)
                    self.assertEqual((row["ceiling"], row["ceiling_of"], row["ceiling_percent"]), (0, "none", 0))

    def test_sizes_of_latency_begin_at_zero(self):
        found = self.results("latency,bandwidth", "-e", 32, *QUICK)
        self.assertEqual([(row["operation"], row["bytes"]) for row in found],
                         [("latency", 0), ("latency", 8), ("latency", 32), ("bandwidth", 8), ("bandwidth", 32)])
        self.assertGreater(found[0]["p50_us"], 0)
        self.assertEqual([row["bytes"] for row in self.results("latency", "-b", 8, "-e", 32, *QUICK)], [8, 32])
        self.assertEqual([row["bytes"] for row in self.results("latency", "-e", 0, *QUICK)], [0])

    def test_messages_without_bytes(self):
        for operation, ranks in STREAMS:
            row, = self.results(operation, "--ranks", ranks, "--sizes", 0, *QUICK)
            self.assertEqual((row["bytes"], row["algbw"]), (0, 0))
            self.assertGreater(row["messages_per_second"], 0)
        for flags in [], ["--one-way"]:
            row, = self.results("sendrecv", "--ranks", 2, "--sizes", 0, *QUICK, *flags)
            self.assertEqual((row["bytes"], row["algbw"]), (0, 0))

    def test_tables(self):
        result = self.bench("latency", "--sizes", "0,1K", *QUICK[1:])
        self.assertIn(": latency over shm, 2 ranks, inputs written anew\n", result.stdout)
        self.assertRegex(result.stdout, r"# +size +type +mean +min +p50 +p90 +p99 +max +#wrong\n")
        self.assertEqual([len(row) for row in rows(result.stdout)], [9, 9])
        self.assertNotIn("bandwidth", result.stdout)
        for operation, text in (("bandwidth", "rank 0 sends 7 messages to rank 1 at once"),
                                ("bibandwidth", "bandwidth and messages are the sums of both directions"),
                                ("rate", "bandwidth and messages are the sums of all pairs")):
            result = self.bench(operation, "--window", 7, "--sizes", "1K", *QUICK)
            self.assertIn(text, result.stdout)
            self.assertRegex(result.stdout, r"# +size +type +window +mean +p50 +p99 +bandwidth +messages +%ceil +#wrong\n")
            row, = rows(result.stdout)
            self.assertEqual((len(row), row[2], row[8], row[9]), (10, "7", "-", "0"))

    def test_ceilings(self):
        """Sockets are compared with the sum of the streams, memcpy with what all of them load and
        store."""
        for (operation, ranks), (transport, ceiling) in drawn_of(itertools.product(STREAMS, (("tcp", "sockets"), ("shm", "memcpy"))), 2):
            with self.subTest(operation=operation, ranks=ranks, transport=transport):
                row, = self.results(operation, "--ranks", ranks, "--sizes", "64K", "-n", 5, "--transport", transport)
                self.assertEqual(row["ceiling_of"], ceiling)
                done = row["busbw"] if transport == "tcp" else 2 * STREAMS[operation, ranks] * row["bytes"] / row["p50_us"] / 1e3
                self.assertAlmostEqual(row["ceiling_percent"], 100 * done / row["ceiling"], delta=0.01 * row["ceiling_percent"])

    def test_csv(self):
        text = self.bench("latency,bibandwidth", "--sizes", 64, *QUICK, "--csv", "-").stdout
        latency, both = csv.DictReader(io.StringIO(text))
        text = self.bench("sendrecv", "--one-way", "--sizes", 64, *QUICK, "--csv", "-").stdout
        one_way, = csv.DictReader(io.StringIO(text))
        self.assertEqual((one_way["operation"], one_way["window"], one_way["agg_iters"]), ("sendrecv_one_way", "64", ""))
        self.assertGreater(float(one_way["latency_p50_us"]), 0)
        self.assertEqual((latency["operation"], latency["window"], latency["messages_per_second"]), ("latency", "", ""))
        self.assertEqual((both["operation"], both["window"], both["agg_iters"]), ("bibandwidth", "64", ""))
        self.assertGreater(float(both["messages_per_second"]), 0)

    def test_max_latency(self):
        for operation, more, name in (("latency", [], "latency 8 B f32"), ("sendrecv", ["--one-way"], "sendrecv_one_way 8 B f32"),
                                      ("sendrecv", [], "sendrecv 8 B f32"), ("all_reduce", [], "all_reduce 8 B f32 sum, in place"),
                                      ("barrier", [], "barrier 0 B u8")):
            sizes = [] if operation == "barrier" else ["--sizes", 8]
            result = self.bench(operation, "--ranks", 2, *sizes, *more, *QUICK, "--max-latency", "1ns", status=1)
            self.assertRegex(result.stderr, rf"(?m)^rondo bench: {name}: p50 of [0-9.]+ \ws, above --max-latency 0\.001 us$")
            self.bench(operation, "--ranks", 2, *sizes, *more, *QUICK, "--max-latency", "100s")

    def test_bounds_of_several_operations(self):
        """Each row is held to the bounds that it can have."""
        result = self.bench("latency,bandwidth,barrier", "--sizes", 8, *QUICK, "--max-latency", "100s", "--min-bandwidth", "1e6", status=1)
        self.assertRegex(result.stderr, r"^rondo bench: bandwidth 8 B f32: [0-9.e-]+ GB/s bus bandwidth, below --min-bandwidth 1e\+06\n$")
        result = self.bench("latency,bandwidth", "--sizes", 8, *QUICK, "--max-latency", "1ns", "--min-bandwidth", "1e-9", status=1)
        self.assertRegex(result.stderr, r"^rondo bench: latency 8 B f32: p50 of [^\n]*\n$")

    def test_under_rondo_run(self):
        for ranks, operation in (2, ["bibandwidth"]), (4, ["rate"]), (2, ["sendrecv", "--one-way"]):
            result = rondo("run", "-n", ranks, "--", RONDO, "bench", *operation, "--sizes", "1K", *QUICK)
            self.assertEqual((result.returncode, len(rows(result.stdout))), (0, 1), result.stdout + result.stderr)
        result = rondo("run", "-n", 3, "--", RONDO, "bench", "rate", "--sizes", "1K", *QUICK)
        self.assertEqual((result.returncode, result.stdout), (2, ""))
        self.assertIn("the number of ranks is even, not 3", result.stderr)

    def test_bad_input(self):
        self.check_refused({
            ("latency", "--ranks", "3"): ["latency: it is between rank 0 and rank 1, so there are 2 ranks, not 3"],
            ("rate", "--ranks", "3"): ["the number of ranks is even, not 3", "start one more or one less"],
            ("latency", "--window", "4"): ["--window 4", "bandwidth, bibandwidth and rate"],
            ("bandwidth", "--window", "0"): ["--window 0", "1 to 65536"],
            ("bandwidth", "-m", "4"): ["--agg_iters 4", "--window messages"],
            ("latency", "-o", "sum"): ["--op sum", "reduces nothing"],
            ("latency", "--delay", "1:5ms"): ["--delay 1:5ms", "only calls of all ranks"],
            ("latency", "--min-bandwidth", "1"): ["--min-bandwidth: latency has one message under way", "give --max-latency, or measure bandwidth"],
            ("bandwidth", "--max-latency", "5us"): ["--max-latency 5us: times of bandwidth are shares of a window", "measure latency"],
            ("latency", "--max-latency", "5"): ["--max-latency 5: not a time", "50us"],
            ("latency", "--max-latency", "0us"): ["--max-latency 0us: give a time above 0"],
            ("latencies",): ["operation latencies", "did you mean latency?"],
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
        })


    # sendrecv

    def test_every_rank_to_the_next(self):
        for ranks, flags in drawn_of(itertools.product((1, 2, 3, 4), TRANSPORTS), 5):
            with self.subTest(ranks=ranks, flags=flags):
                document = self.document("sendrecv", "--ranks", ranks, *SIZES, *flags, *QUICK)
                self.assertEqual((document["operations"], document["ranks"]), (["sendrecv"], ranks))
                self.assertEqual(document["transport"], flags[1] if ranks > 1 else "none")
                self.assertEqual([row["bytes"] for row in document["results"]], [12, 1200, 120000])
                for row in document["results"]:
                    self.assertEqual((row["operation"], row["agg_iters"]), ("sendrecv", 1))
                    self.assertFalse({"window", "messages_per_second", *LATENCY} & set(row))
                    self.check_row(row)
                    self.check_rate(row)

    def test_table_of_sendrecv(self):
        result = self.bench("sendrecv", "--ranks", 3, "-b", "1K", "-e", "4K", "-n", 5, "-m", 3)
        self.assertIn(": sendrecv over shm, 3 ranks, 3 calls in a row, inputs written anew\n", result.stdout)
        for row in rows(result.stdout):
            self.assertEqual(len(row), 13 + 3, row)  # the last three say who is late
            self.assertEqual(row[1:6], ["f32", "none", "-", "-", "messages"])
            self.assertEqual(row[12], "0")
        self.assertIn("# Wrong elements       : 0 OK", result.stdout)
        self.assertRegex(result.stdout, r"# Ceiling              : [0-9.]+ to [0-9.]+ GB/s")

    def test_every_type(self):
        result = self.bench("sendrecv", "-d", "all", "--ranks", 2, "-b", "40K", "-e", "40K", *QUICK)
        self.assertEqual(len(rows(result.stdout)), 14)
        self.assertIn("# Wrong elements       : 0 OK", result.stdout)

    def test_one_way(self):
        windows = ([], 64), (["--window", 1], 1), (["--window", 5, "-c", 0], 5)
        for flags, (more, window) in drawn_of(itertools.product(TRANSPORTS, windows), 4):
            with self.subTest(flags=flags, window=window):
                document = self.document("sendrecv", "--one-way", *more, *SIZES, *flags, *QUICK)
                self.assertEqual((document["operations"], document["ranks"]), (["sendrecv_one_way"], 2))
                self.assertEqual(len(document["results"]), 3)
                for row in document["results"]:
                    self.assertEqual((row["operation"], row["window"]), ("sendrecv_one_way", window))
                    self.assertFalse({"agg_iters", "messages_per_second"} & set(row))
                    self.assertEqual([time is None for time in row["rank_p50_us"]], [False, True])
                    self.check_row(row)
                    self.check_rate(row)
                    self.assertGreater(row["latency_min_us"], 0)
                    self.assertLessEqual(row["latency_min_us"], row["latency_p50_us"])
                    self.assertLessEqual(row["latency_p50_us"], row["latency_p99_us"])

    def test_one_way_table(self):
        result = self.bench("sendrecv", "--one-way", "--window", 7, "-b", "1K", "-e", "4K", "-n", 5, "--transport", "tcp")
        self.assertIn(": sendrecv_one_way over tcp, 2 ranks, window of 7, inputs written anew\n", result.stdout)
        self.assertIn("# stream: rank 0 sends 7 messages to rank 1 at once", result.stdout)
        self.assertRegex(result.stdout, r"#.* %ceil #wrong +algorithm +latency +p50 +p99\n#.* sockets +\(us\) +\(us\) +\(us\)\n")
        for row in rows(result.stdout):
            self.assertEqual(len(row), 5 + 8 + 3, row)
            self.assertEqual(row[11], "0")

    def test_min_bandwidth(self):
        for flags, name in ([], "sendrecv"), (["--one-way"], "sendrecv_one_way"):
            result = self.bench("sendrecv", "--ranks", 2, "--sizes", "1K", "--min-bandwidth", "1e6", *QUICK, *flags, status=1)
            self.assertIn(f"rondo bench: {name} 1 KiB f32: ", result.stderr)


if __name__ == "__main__":
    main()
