# SPDX-License-Identifier: Apache-2.0
"""Long runs of rondo bench: soaks, and runs that a signal or a closed pipe ends.
Usage: soak_test.py PATH_OF_RONDO [unittest arguments]"""

import json
import os
import pathlib
import re
import signal
import subprocess
import tempfile
import time

from program import QUICK, BenchTest, all_cases, clean_environment, drawn_of, few_cases, heed_signals, main, ranks_of

ENDLESS = ["bench", "--ranks", "3", "--sizes", "8,1K", "-n", "1000000000", "--no-ceiling"]
# Ranks leave within a second. The limit is wide, because test machines are busy.
LIMIT = 20


class Ending(BenchTest):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.json = pathlib.Path(folder.name) / "out.json"

    def start(self, *arguments):
        return self.started(*arguments, preexec_fn=heed_signals)

    def read_until(self, process, pattern):
        while True:
            line = process.stdout.readline()
            self.assertNotEqual(line, "", process.stderr.read() if process.poll() is not None else "")
            if re.search(pattern, line):
                return

    def check_all_gone(self, pids):
        for pid in pids:
            self.assertFalse(os.path.exists(f"/proc/{pid}"), pid)

    def test_a_signal_ends_all_ranks_with_what_was_measured(self):
        # Two operations: when the first has its row, the second one is under way without an end.
        for number in drawn_of((signal.SIGINT, signal.SIGTERM, signal.SIGHUP)):
            process = self.start(*ENDLESS, "--json", self.json)
            self.read_until(process, r"\(B\)")
            ranks = ranks_of(process)
            time.sleep(0.5)  # for some iterations
            process.send_signal(number)
            output, errors = process.communicate(timeout=LIMIT)
            self.assertEqual(process.returncode, 128 + number, errors)
            self.assertEqual(errors, f"rondo bench: ended early: ended by {number.name}; the results so far are kept\n")
            self.assertIn("# Wrong elements       : 0 OK", output)
            self.check_all_gone(ranks)
            document = json.loads(self.json.read_text())
            self.assertEqual((document["complete"], document["error"]), (False, f"ended early: ended by {number.name}"))
            row = document["results"][0]
            self.assertEqual((row["cut_short"], row["wrong"], len(document["results"])), (True, 0, 1))
            self.assertGreater(row["iterations"], 10)

    def test_a_signal_to_one_rank_ends_all(self):
        process = self.start(*ENDLESS, "--json", self.json)
        self.read_until(process, r"\(B\)")
        ranks = ranks_of(process)
        os.kill(ranks[2], signal.SIGTERM)
        _, errors = process.communicate(timeout=LIMIT)
        self.assertEqual(process.returncode, 128 + signal.SIGTERM)
        self.assertEqual(errors, "rondo bench: ended early: rank 2 was ended by SIGTERM; the results so far are kept\n")
        self.check_all_gone(ranks)
        document = json.loads(self.json.read_text())
        self.assertEqual((document["error"], len(document["results"])), ("ended early: rank 2 was ended by SIGTERM", 1))

    def test_a_closed_pipe_ends_all_ranks(self):
        process = self.start(*ENDLESS, "--json", self.json)
        self.read_until(process, r"\(B\)")
        ranks = ranks_of(process)
        process.stdout.close()
        self.assertEqual(process.wait(timeout=LIMIT), 141)
        self.assertEqual(process.stderr.read(), "")
        self.check_all_gone(ranks)
        document = json.loads(self.json.read_text())
        self.assertEqual((document["complete"], len(document["results"])), (False, 1))

    def test_a_rank_that_does_not_stop_is_waited_for_less_than_a_second(self):
        process = self.start(*ENDLESS, "--json", self.json)
        self.read_until(process, r"\(B\)")
        ranks = ranks_of(process)
        os.kill(ranks[1], signal.SIGSTOP)
        time.sleep(0.2)  # the others wait for it
        begin = time.monotonic()
        process.send_signal(signal.SIGTERM)
        while os.path.exists(f"/proc/{ranks[0]}/exe") and time.monotonic() < begin + LIMIT:
            time.sleep(0.01)
        self.assertFalse(os.path.exists(f"/proc/{ranks[0]}/exe"))
        process.send_signal(signal.SIGKILL)
        for pid in ranks:
            try:
                os.kill(pid, signal.SIGKILL)
            except ProcessLookupError:
                pass
        process.communicate(timeout=LIMIT)
        self.assertIn("ended by SIGTERM", json.loads(self.json.read_text())["error"])

    def test_a_late_rank_does_not_hold_up_the_end(self):
        process = self.start("bench", "--ranks", "2", "--sizes", "8", "-n", "3", "--no-ceiling", "--delay", "1:30s")
        self.read_until(process, r"\(B\)")
        time.sleep(0.2)
        process.send_signal(signal.SIGTERM)
        _, errors = process.communicate(timeout=9)  # after 10 the parent would send another one
        self.assertEqual((process.returncode, errors.count("\n")), (128 + signal.SIGTERM, 1), errors)

    def test_millions_of_iterations_are_kept_when_a_signal_comes(self):
        process = self.start("bench", "barrier", "--ranks", "1", "-n", "1000000000", "--json", self.json)
        self.read_until(process, r"\(B\)")
        time.sleep(3 if all_cases() or few_cases() else 1)
        process.send_signal(signal.SIGTERM)
        process.communicate(timeout=LIMIT)
        document = json.loads(self.json.read_text())
        self.assertEqual(document["error"], "ended early: ended by SIGTERM")
        self.assertGreater(document["results"][0]["iterations"], 20_000 if few_cases() else 100_000)

    def test_two_signals_at_once_lose_nothing(self):
        process = self.start(*ENDLESS, "--json", self.json)
        self.read_until(process, r"\(B\)")
        for pid in ranks_of(process):
            os.kill(pid, signal.SIGINT)
            os.kill(pid, signal.SIGTERM)
        process.communicate(timeout=LIMIT)
        self.assertGreater(process.returncode, 128)
        self.assertEqual(len(json.loads(self.json.read_text())["results"]), 1)

    def test_an_ignored_signal_stays_ignored(self):
        process = self.started("bench", "--ranks", 2, "--sizes", 8, "--seconds", 2, "--json", self.json,
                               preexec_fn=lambda: signal.signal(signal.SIGHUP, signal.SIG_IGN))
        while "(B)" not in process.stdout.readline():
            pass
        process.send_signal(signal.SIGHUP)
        _, errors = process.communicate(timeout=60)
        self.assertEqual((process.returncode, errors), (0, ""))
        self.assertTrue(json.loads(self.json.read_text())["complete"])


class Soak(BenchTest):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)
        self.json, self.lines = self.folder / "out.json", self.folder / "out.jsonl"

    def soak(self, *arguments, status=0):
        return self.bench("--ranks", 3, "--interval", "100ms", *arguments, status=status)

    def check_summary(self, rows, summaries):
        self.assertEqual({(row["operation"], row["bytes"]) for row in rows}, {(one["operation"], one["bytes"]) for one in summaries})
        for one in summaries:
            own = [row for row in rows if (row["operation"], row["bytes"]) == (one["operation"], one["bytes"])]
            self.assertEqual((one["intervals"], one["wrong"]), (len(own), 0))
            self.assertEqual(one["iterations"], sum(row["iterations"] for row in own))
            self.assertEqual(one["min_us"], min(row["min_us"] for row in own))
            self.assertEqual(one["max_us"], max(row["max_us"] for row in own))
            self.assertLessEqual(one["p50_us"], one["p99_us"])
            self.assertIsNone(one["drift_percent_per_hour"])  # too short to be told from noise

    def test_intervals_and_summary(self):
        result = self.soak("all_reduce,broadcast", "--sizes", "8,16K", "--seconds", "2", "--json", self.json, "--jsonl", self.lines)
        self.assertLessEqual(max(map(len, result.stdout.splitlines())), 120)
        document = json.loads(self.json.read_text())
        self.assertEqual((document["version"], document["kind"], document["complete"]), (1, "soak", True))
        rows = document["results"]
        self.assertGreaterEqual(len(rows), 4)
        self.assertEqual([(row["operation"], row["bytes"]) for row in rows[:4]],
                         [("all_reduce", 8), ("all_reduce", 16384), ("broadcast", 8), ("broadcast", 16384)])
        seconds = [row["second"] for row in rows]
        self.assertEqual(seconds, sorted(seconds))
        self.check_summary(rows, document["summary"])
        head, *lines, last = map(json.loads, self.lines.read_text().splitlines())
        self.assertEqual((head["version"], head["kind"], head["ranks"]), (1, "soak", 3))
        self.assertEqual(lines, rows)
        self.check_summary(lines, last["summary"])
        self.assertEqual(len([line for line in result.stdout.splitlines() if line and not line.startswith("#")]), len(rows))

    def test_an_hour_takes_less_than_20_mb(self):
        self.soak("--sizes", "8", "--seconds", "2", "--jsonl", self.lines, "--json", self.json)
        for path in self.lines, self.json:
            longest = max(map(len, path.read_text().splitlines()[:-4]))
            self.assertLess(longest * 3600, 20e6)

    def test_lines_stand_at_once(self):
        process = self.started("bench", "--ranks", 2, "--sizes", 8, "--seconds", "1h", "--interval", "50ms", "--jsonl", "-",
                               preexec_fn=heed_signals)
        head = json.loads(process.stdout.readline())
        self.assertEqual(head["kind"], "soak")
        for _ in range(3):
            self.assertGreater(json.loads(process.stdout.readline())["iterations"], 0)
        process.send_signal(signal.SIGINT)
        output, errors = process.communicate(timeout=LIMIT)
        self.assertEqual(process.returncode, 130, errors)
        self.assertEqual(json.loads(output.splitlines()[-1])["summary"][0]["bytes"], 8)

    def test_a_killed_rank_leaves_every_interval(self):
        process = self.started("bench", "--ranks", 3, "--sizes", 8, "--seconds", "1h", "--interval", "50ms", "--jsonl", self.lines,
                               "--json", self.json)
        seen = 0
        while seen < 4:
            line = process.stdout.readline()
            self.assertNotEqual(line, "")
            seen += not line.startswith("#")
        os.kill(ranks_of(process)[1], signal.SIGKILL)
        output, _ = process.communicate(timeout=60)
        self.assertEqual(process.returncode, 128 + 9)
        shown = seen + sum(not line.startswith("#") for line in output.splitlines())
        document = json.loads(self.json.read_text())
        self.assertRegex(document["error"], "rank 1")
        self.assertEqual(len(document["results"]), shown)
        self.assertEqual(document["summary"][0]["intervals"], shown)
        self.assertEqual(len(self.lines.read_text().splitlines()), 1 + shown + 1)

    def test_lines_through_a_pipe_with_a_name(self):
        os.mkfifo(self.lines)
        with subprocess.Popen(["cat", str(self.lines)], stdout=subprocess.PIPE, text=True) as reader:
            self.soak("--sizes", "8", "--seconds", "0.5", "--jsonl", self.lines)
            lines = reader.communicate(timeout=LIMIT)[0].splitlines()
        self.assertIn("summary", json.loads(lines[-1]))

    def test_slow_intervals_fail(self):
        result = self.soak("--sizes", "64K", "--seconds", "1", "--min-bandwidth", "1e6", status=1)
        self.assertRegex(result.stderr, r"all_reduce 64 KiB f32 sum: (\d+) of \1 intervals failed, the last with .* below --min-bandwidth 1e\+06\n")


class Late(BenchTest):
    def rows(self, *arguments):
        return self.document("all_reduce", "--ranks", 3, "--sizes", "8,64K", "-n", 40, "--no-ceiling", *arguments)["results"]

    def test_a_rank_that_sleeps_is_named(self):
        for more in drawn_of(([], ["--transport", "tcp"])):
            delayed = self.rows("--delay", "1:20ms", *more)
            for row in delayed:
                self.assertEqual(row["late_rank"], 1)
                self.assertGreater(row["late_share"], 0.5)
                self.assertGreaterEqual(row["late_us"], 18000)
                self.assertEqual(row["rank_last_share"].index(max(row["rank_last_share"])), 1)
                # The transfer does not contain the 20 ms.
                self.assertLess(row["transfer_us"], row["p50_us"] - 10000)

    def test_stragglers_are_listed_in_order(self):
        result = self.bench("all_reduce,barrier", "--ranks", 3, "--sizes", 8, "-n", 20, "--no-ceiling", "--stragglers", "--delay", "2:5ms")
        table = result.stdout.split("# Stragglers")[1].splitlines()[2:]
        self.assertEqual(len(table), 3)
        self.assertEqual(table[0].split()[1], "2")
        self.assertGreaterEqual(float(table[0].split()[4]), 4500)

    def test_hosts_are_compared(self):
        """Ranks that count as ranks of different hosts compare their clocks by messages."""
        with tempfile.TemporaryDirectory() as folder:
            environments = [dict(RONDO_RANK=str(rank), RONDO_SIZE="2", RONDO_RENDEZVOUS=f"file://{folder}/meet", RONDO_HOST=f"host{rank}",
                                 RONDO_SECRET="s" * 32, RONDO_TRANSPORT="tcp", RONDO_INTERFACE="lo") for rank in range(2)]
            processes = [self.started("bench", "--sizes", 8, "--delay", "1:20ms", "--json", "-", *QUICK, env=clean_environment(**environment))
                         for environment in environments]
            outputs = [process.communicate(timeout=60) for process in processes]
        self.assertEqual([process.returncode for process in processes], [0, 0], outputs)
        document = json.loads(outputs[0][0])
        self.assertEqual([host["ranks"] for host in document["hosts"]], [[0], [1]])
        for row in document["results"]:
            self.assertEqual(row["late_rank"], 1)
            self.assertGreater(row["clock_error_us"], 0)
            self.assertGreaterEqual(row["late_us"] + row["clock_error_us"], 18000)


if __name__ == "__main__":
    main()
