# SPDX-License-Identifier: Apache-2.0
"""The rondo program, started as users start it.
Usage: program_test.py PATH_OF_RONDO [unittest arguments]"""

import csv
import itertools
import json
import os
import pathlib
import re
import subprocess
import tempfile
import unittest

from program import QUICK, RONDO, BenchTest, cells, clean_environment, drawn_of, free_port, main, rondo, rows


class Bench(BenchTest):
    def test_table(self):
        result = self.bench("--ranks", 3, "-b", "8", "-e", "32K", "-f", 16, "-n", 5)
        table = cells(result.stdout)
        self.assertEqual([row["size"] for row in table], [size for size in ("8", "128", "2048", "32768") for _ in range(2)])
        self.assertEqual([row["place"] for row in table], ["out", "in"] * 4)
        for row in table:
            self.assertEqual((row["type"], row["redop"], row["root"]), ("f32", "sum", "-"))
            p50, p99, algbw, busbw = (float(row[name]) for name in ("p50", "p99", "algbw", "busbw"))
            self.assertLessEqual(p50, p99)
            self.assertLessEqual(float(row["transf"]), p99)
            self.assertAlmostEqual(algbw, int(row["size"]) / p50 / 1000, delta=0.001 + algbw * 0.02)
            self.assertAlmostEqual(busbw, algbw * 4 / 3, delta=0.002)
            self.assertEqual(row["wrong"], "0")
            rank, share, late = row["late"]
            self.assertIn(rank, "012")
            self.assertRegex(share + late, r"^\d+%[\d.]+(us|ms)$")
        self.assertLessEqual(max(map(len, result.stdout.splitlines())), 120)
        self.assertIn("# Wrong elements       : 0 OK", result.stdout)
        self.assertRegex(result.stdout, r"# Avg bus bandwidth    : [0-9.]+ GB/s")
        self.assertRegex(result.stdout, r"# Ceiling              : [0-9.]+ to [0-9.]+ GB/s")
        self.assertEqual(result.stderr, "")

    def test_wide_table(self):
        result = self.bench("--ranks", 3, "-b", "8", "-e", "32K", "-f", 16, "-n", 5, "--wide")
        table = rows(result.stdout)
        self.assertEqual([row[0] for row in table], ["8", "128", "2048", "32768"])
        for row in table:
            self.assertEqual(len(row), 5 + 8 + 8, row)
            self.assertEqual(row[1:5], [str(int(row[0]) // 4), "f32", "sum", "-1"])
            for half in row[5:13], row[13:21]:
                time_us, p50, p99, algbw, busbw = map(float, half[:5])
                self.assertLessEqual(p50, p99)
                self.assertGreater(time_us, 0)
                self.assertAlmostEqual(algbw, int(row[0]) / p50 / 1000, delta=0.001 + algbw * 0.02)
                self.assertAlmostEqual(busbw, algbw * 4 / 3, delta=0.002)
                self.assertEqual((half[6], half[7]), ("0", "direct"))

    def test_several_operations(self):
        for flags in [], ["--wide"]:
            result = self.bench("all_reduce,all_gather,barrier,sendrecv", "--sizes", "64K,12,1200", "-d", "f32,u8", "--ranks", 3, *QUICK, *flags,
                                "--json", "-")
            results = json.loads(result.stdout)["results"]
            self.assertEqual({row["operation"]: 0 for row in results}, dict.fromkeys(["all_reduce", "all_gather", "barrier", "sendrecv"], 0))
            self.assertEqual([row["bytes"] for row in results if row["operation"] == "all_reduce" and row["type"] == "u8"],
                             [12, 12, 1200, 1200, 65536, 65536])
            self.assertEqual([(row["bytes"], row["type"]) for row in results if row["operation"] == "barrier"], [(0, "u8")])
            self.assertEqual({row["wrong"] for row in results}, {0})
        table = self.bench("all_reduce,broadcast,barrier", "--sizes", "1K", "--ranks", 2, *QUICK).stdout
        self.assertEqual([row["place"] for row in cells(table)], ["out", "in", "out", "in", "-"])
        for operation in "all_reduce", "broadcast", "barrier":
            self.assertIn(f"\n# {operation}\n", table)

    def test_quiet(self):
        result = self.bench("--ranks", 2, "--sizes", "64K", "--quiet", "--min-bandwidth", "1e6", *QUICK, status=1)
        self.assertEqual(result.stdout, "")
        self.assertIn("below --min-bandwidth 1e+06", result.stderr)

    def test_title(self):
        for flags in [], ["--allocate"]:
            result = self.bench("--ranks", 2, "-b", "1K", "-e", "1K", *QUICK, *flags)
            self.assertIn("all_reduce over shm, 2 ranks, inputs written anew" + (", buffers from Communicator::allocate\n" if flags else "\n"), result.stdout)
            self.assertEqual([row["ceil"] for row in cells(result.stdout)], ["-", "-"])

    def test_calls_in_a_row(self):
        result = self.bench("--ranks", 2, "-b", 8, "-e", "8K", "-f", 32, "-m", 70, *QUICK)
        self.assertIn("all_reduce over shm, 2 ranks, 70 calls in a row, inputs written anew\n", result.stdout)
        self.assertEqual([(row["size"], row["wrong"]) for row in cells(result.stdout)], [(size, "0") for size in ("8", "256", "8192") for _ in range(2)])

    def test_own_steps_end_with_the_largest_size(self):
        result = self.bench("-b", 8, "-e", 100, "--ranks", 2, *QUICK)
        self.assertEqual([row[0] for row in rows(result.stdout)][::2], ["8", "32", "100"])
        result = self.bench("-b", 8, "-e", 100, "-f", 4, "--ranks", 2, *QUICK)
        self.assertEqual([row[0] for row in rows(result.stdout)][::2], ["8", "32"])

    def test_command_lines_of_nccl_tests(self):
        """Flags that Rondo cannot follow are refused, so that a pasted command measures what it says."""
        with tempfile.TemporaryDirectory() as folder:
            path = pathlib.Path(folder) / "out.json"
            result = self.bench("all_reduce_perf", *"-b 8 -e 1K -f 2 -g 1 -t 1 -n 2 -w 1 -c 1 -d float -o sum -z 1 -a 3 -N 1 -p 1 -G 0 -C 0 -R 0 -T 60 -S 0".split(),
                                "--ranks", 2, "--no-ceiling", "--memory_report=0", "-J", path)
            self.assertEqual([row["size"] for row in cells(result.stdout)][::2], ["8", "16", "32", "64", "128", "256", "512", "1024"])
            self.assertEqual(len(json.loads(path.read_text())["results"]), 16)
        for words, why in {"-g 8": "-g 8: a rank has at most one GPU; --ranks or the launcher starts more; leave the flag out", "--nthreads 2": "-t 2: a rank is a process", "-z 0": "waits for its calls", "-a 1": "slowest rank",
                           "-N 0": "--seconds 1h", "-p 2": "join", "-G 5": "CUDA graph", "-C 1": "when the result is there", "-R 2": "--allocate takes",
                           "-S 1": "--jsonl", "-M 1": "memory", "-y 1": "stream", "-u 3": "aligned", "-I 1": "percentiles", "-K 1": "-w says",
                           "-x 2": "NCCL", "-D 1": "--algorithm direct", "-T 0": "--deadline 0: give a whole number from 1"}.items():
            result = rondo("bench", *words.split())
            self.assertEqual((result.returncode, result.stdout, result.stderr.count("\n")), (2, "", 1), words)
            self.assertIn(why, result.stderr)

    def test_every_operation(self):
        factors = {"all_reduce": 4 / 3, "reduce": 1, "broadcast": 1, "all_gather": 2 / 3, "reduce_scatter": 2 / 3,
                   "gather": 2 / 3, "scatter": 2 / 3, "all_to_all": 2 / 3, "all_gather_v": 2 / 3, "reduce_scatter_v": 2 / 3}
        with tempfile.TemporaryDirectory() as folder:
            path = pathlib.Path(folder) / "out.json"
            for operation, factor in drawn_of(factors.items(), 3):
                for flags in ["--transport", "tcp"], ["--allocate"], []:
                    self.bench(operation, "--ranks", 3, "-b", "12", "-e", "120000", "-f", 100, "--json", path, *flags, *QUICK)
                document = json.loads(path.read_text())
                self.assertEqual(document["operations"], [operation])
                self.assertEqual(len(document["results"]), 6)
                for row in document["results"]:
                    self.assertEqual(row["wrong"], 0)
                    self.assertAlmostEqual(row["busbw"], row["algbw"] * factor, places=6)
                    blocks = 3 if operation in ("all_gather", "reduce_scatter", "gather", "scatter") else 1
                    self.assertEqual(row["bytes"], row["count"] * 4 * blocks)
            result = self.bench("barrier", "--ranks", 3, "-n", 3)
            self.assertEqual(len(rows(result.stdout)), 1)

    def test_every_type_and_op(self):
        result = self.bench("-d", "all", "-o", "all", "--ranks", 3, "-b", "40K", "-e", "40K", *QUICK)
        self.assertEqual(len(rows(result.stdout)), 2 * (6 * 5 + 8 * 8))
        self.assertIn("# Wrong elements       : 0 OK", result.stdout)

    def test_every_root(self):
        result = self.bench("broadcast", "-r", "all", "--ranks", 3, "-b", "1K", "-e", "1K", *QUICK)
        self.assertEqual([row["root"] for row in cells(result.stdout)][::2], ["0", "1", "2"])

    def test_unchecked(self):
        result = self.bench("-c", 0, "--ranks", 2, "-b", "1K", "-e", "1K", *QUICK)
        self.assertEqual(cells(result.stdout)[0]["wrong"], "N/A")

    def test_fresh_is_shown(self):
        flags = ["--ranks", 2, "-b", "1K", "-e", "1K", *QUICK]
        for more, fresh in ([], True), (["--fresh"], True), (["-c", 0], False), (["-c", 0, "--fresh"], True):
            with self.subTest(flags=more):
                title = "inputs written anew" if fresh else "inputs used again"
                self.assertIn(f"all_reduce over shm, 2 ranks, {title}\n", self.bench(*flags, *more).stdout)
                self.assertIs(json.loads(self.bench(*flags, *more, "--json", "-").stdout)["fresh"], fresh)

    def test_every_operation_with_calls_in_a_row(self):
        operations = ("all_reduce", "reduce", "broadcast", "all_gather", "reduce_scatter", "gather", "scatter",
                      "all_to_all", "all_gather_v", "reduce_scatter_v", "barrier")
        for operation, more in drawn_of(itertools.product(operations, (["--fresh"], ["--fresh", "-c", 0], ["--allocate"])), 7):
            with self.subTest(operation=operation, flags=more):
                result = self.bench(operation, "--ranks", 3, "-b", 12, "-e", "120K", "-f", 100, "-m", 5, *more, *QUICK)
                self.assertIn(", 5 calls in a row", result.stdout)
                self.assertIn("not checked" if "-c" in more else " 0 OK", result.stdout)

    def test_json_and_csv(self):
        with tempfile.TemporaryDirectory() as folder:
            path, table = pathlib.Path(folder) / "out.json", pathlib.Path(folder) / "out.csv"
            path.write_text("something longer than nothing" * 1000)
            self.bench("-b", "1K", "-e", "2K", "-i", "1K", "--ranks", 2, "--json", path, "--csv", table, *QUICK)
            document = json.loads(path.read_text())
            self.assertEqual(list(document), ["version", "kind", "rondo", "time", "command", "operations", "transport", "ranks", "binding",
                                              "processors", "checked", "fresh", "allocated", "hosts", "environment", "results", "complete"])
            self.assertEqual((document["version"], document["kind"], document["operations"]), (1, "bench", ["all_reduce"]))
            self.assertEqual((document["transport"], document["ranks"]), ("shm", 2))
            self.assertEqual(document["command"][1:4], ["bench", "-b", "1K"])
            self.assertRegex(document["time"], r"^20\d\d-\d\d-\d\dT\d\d:\d\d:\d\dZ$")
            self.assertEqual([(host["ranks"], host["cores"] > 0, host["memory_bytes"] > 0) for host in document["hosts"]], [([0, 1], True, True)])
            self.assertEqual(document["hosts"][0]["kernel"], f"Linux {os.uname().release}")
            self.assertEqual([row["bytes"] for row in document["results"]], [1024, 1024, 2048, 2048])
            self.assertEqual([row["in_place"] for row in document["results"]], [False, True] * 2)
            for row in document["results"]:
                times = [row[name] for name in ("min_us", "p50_us", "p90_us", "p99_us", "max_us")]
                self.assertEqual(times, sorted(times))
                self.assertEqual(row["iterations"], 3)
                self.assertEqual((len(row["rank_p50_us"]), len(row["rank_behind_us"])), (2, 2))
                self.assertLessEqual(max(row["rank_p50_us"]), row["max_us"])
            with table.open() as file:
                lines = list(csv.DictReader(file))
            self.assertEqual([int(line["bytes"]) for line in lines], [1024, 1024, 2048, 2048])
            self.assertEqual(lines[1]["in_place"], "true")
            for line, row in zip(lines, document["results"]):
                for name, value in line.items():
                    if name in row and not isinstance(row[name], (str, bool)):
                        self.assertEqual(float(value), row[name], name)

    def test_metrics(self):
        with tempfile.TemporaryDirectory() as folder:
            self.bench("--ranks", 2, "--sizes", "1K", "--metrics", f"{folder}/bench.prom", *QUICK)
            self.assertEqual(sorted(os.listdir(folder)), ["bench.0.prom", "bench.1.prom"])
            text = pathlib.Path(folder, "bench.1.prom").read_text()
            self.assertRegex(text, r'(?m)^rondo_operations_total\{.*operation="all_reduce".*\} [1-9]')
            result = self.bench("--ranks", 2, "--sizes", "1K", "--metrics", f"{folder}/no/bench.prom", *QUICK, status=2)
            self.assertIn(f"{folder}/no", result.stderr)

    def test_binding_is_shown(self):
        cores = sorted(os.sched_getaffinity(0))
        flags = ["-b", 64, "-e", 64, *QUICK]
        bound = self.bench("--ranks", 1, *flags).stdout
        if len(cores) > 1:
            self.assertRegex(bound, rf"(?m)^# rank 0 is bound to a core \({cores[0]}\b")
            document = json.loads(self.bench("--ranks", 1, *flags, "--json", "-").stdout)
            self.assertEqual(document["binding"], "core")
            self.assertEqual(document["processors"].split("-")[0].split(",")[0], str(cores[0]))
            line = self.bench("--ranks", 1, *flags, "--csv", "-").stdout.splitlines()[1]
            self.assertTrue(line.startswith("all_reduce,none,1,core,true,64,16,f32,"), line)
        if os.cpu_count() == len(cores):
            self.assertIn("# rank 0 is not bound\n", self.bench("--ranks", 1, "--bind", "none", *flags).stdout)

    def test_binding_that_cannot_be(self):
        result = self.bench("--bind", "socket", status=2)
        self.assertIn("--bind socket: unknown; possible: core, numa, none", result.stderr)
        result = self.bench("--ranks", 1000, "-b", 8, "-e", 8, "--bind", "core", status=2)
        self.assertRegex(result.stderr, r"--bind core: there are 1000 ranks, and this process may use \d+ cores?; start at most \d+, "
                                        "or give --bind numa or --bind none")
        launched = dict(RANK="0", WORLD_SIZE="1", MASTER_ADDR="127.0.0.1", MASTER_PORT="4711")
        result = self.bench("--bind", "core", status=2, **launched)
        self.assertIn("--bind: torchrun has started the ranks, so it binds them; leave --bind out", result.stderr)

    def test_min_bandwidth(self):
        self.bench("--ranks", 2, "-b", "64K", "-e", "64K", "--min-bandwidth", "0.0000001", *QUICK)
        result = self.bench("--ranks", 2, "-b", "64K", "-e", "64K", "--min-bandwidth", "1e6", *QUICK, status=1)
        self.assertIn("all_reduce 64 KiB f32 sum, in place: ", result.stderr)
        self.assertIn("below --min-bandwidth 1e+06", result.stderr)
        self.bench("--ranks", 2, "-b", 0, "-e", "64K", "-f", 65536, "--min-bandwidth", "0.0000001", *QUICK)

    def test_algorithm(self):
        with tempfile.TemporaryDirectory() as folder:
            path = pathlib.Path(folder) / "out.json"
            self.bench("--algorithm", "star", "--ranks", 3, "-b", "1K", "-e", "1K", "--json", path, *QUICK)
            self.assertEqual({row["algorithm"] for row in json.loads(path.read_text())["results"]}, {"star"})

    def test_bad_input(self):
        cases = {
            ("all_reduce,all_reduce",): ["operation all_reduce", "named twice"],
            ("--sizes", "8,many"): ["--sizes many", "K, M, G"],
            ("--sizes", "8", "-e", "1K"): ["--maxbytes 1K", "--sizes 8"],
            ("--delay", "3"): ["--delay 3", "3:5ms"],
            ("--delay", "4:5ms"): ["--delay", "4 ranks", "0 to 3"],
            ("--delay", "1:2h"): ["--delay 2h: not a time"],
            ("--seconds", "never"): ["--seconds never", "90s, 1h"],
            ("--seconds", "1", "-n", "5"): ["--iters 5", "as many iterations as fit"],
            ("--jsonl", "x"): ["--jsonl x", "only with --seconds"],
            ("--seconds", "1", "--interval", "1ms"): ["--interval 1ms", "at least 10ms"],
            ("--seconds", "1", "--stragglers"): ["--stragglers", "not with --seconds"],
            ("--metrics", "/nonexistent/x.prom"): ["--metrics /nonexistent/x.prom", "no folder /nonexistent"],
            ("--interval", "1s"): ["--interval 1s", "only with --seconds"],
            ("--seconds", "1", "--jsonl", "/nonexistent/x"): ["--jsonl /nonexistent/x", "No such file"],
            ("all_redcue",): ["operation all_redcue", "all_reduce, reduce, broadcast"],
            ("--bogus",): ["--bogus", "--minbytes"],
            ("-d", "f33"): ["--datatype f33", "f64, f32, f16", "all"],
            ("-o", "avrage"): ["--op avrage", "sum, mean, product", "all"],
            ("-o", "bit_and"): ["--op bit_and", "integer"],
            ("--algorithm", "bucket"): ["--algorithm bucket", "ring, tree, star"],
            ("--transport", "pigeon"): ["--transport pigeon", "tcp"],
            ("--interfaces", "eth99"): ["eth99"],
            ("-b", "2K", "-e", "1K"): ["--minbytes 2K", "--maxbytes 1K"],
            ("-f", "0"): ["--stepfactor 0"],
            ("-i", "0"): ["--stepbytes 0"],
            ("-n", "0"): ["--iters 0"],
            ("-m", "0"): ["--agg_iters 0"],
            ("-m", "100000", "-e", "60T"): ["--maxbytes 60 TiB, --agg_iters 100000", "fit into no memory"],
            ("-m", "100000", "-e", "1G"): ["--maxbytes 1 GiB, --agg_iters 100000", "this machine has"],
            ("-b", "many"): ["--minbytes many", "K, M, G"],
            ("-r", "-1"): ["--root -1"],
            ("-r", "4"): ["--root 4", "0 to 3"],
            ("--ranks", "2", "-r", "2", "reduce"): ["--root 2", "0 to 1"],
            ("--ranks", "0"): ["--ranks 0", "1 to 1024"],
            ("--ranks", "10000"): ["--ranks 10000", "1 to 1024"],
            ("--min-bandwidth", "fast"): ["--min-bandwidth fast"],
            ("barrier", "--min-bandwidth", "1"): ["--min-bandwidth", "a barrier moves no data"],
            ("--deadline", "0"): ["--deadline 0"],
            ("--json", "/nonexistent/x.json"): ["--json /nonexistent/x.json", "No such file"],
            ("--csv", "/"): ["--csv /", "directory"],
            ("-e", "60T"): ["--maxbytes 60 TiB", "this machine has"],
        }
        self.check_refused(cases)


class Launchers(unittest.TestCase):
    QUICK = ["bench", "-b", "1K", "-e", "16K", *QUICK]

    def test_rondo_run(self):
        result = rondo("run", "-n", 3, "--", RONDO, *self.QUICK)
        self.assertEqual((result.returncode, len(rows(result.stdout))), (0, 6), result.stdout + result.stderr)
        self.assertIn("3 ranks", result.stdout)

    def together(self, environments):
        processes = [subprocess.Popen([RONDO, *self.QUICK], env=clean_environment(**environment), text=True,
                                      stdout=subprocess.PIPE, stderr=subprocess.PIPE) for environment in environments]
        results = [process.communicate(timeout=60) for process in processes]
        for process, (_, errors) in zip(processes, results):
            self.assertEqual(process.returncode, 0, errors)
        self.assertEqual([out for out, _ in results[1:]], [""] * (len(results) - 1))
        self.assertEqual(len(rows(results[0][0])), 6)
        self.assertIn(f"{len(environments)} ranks", results[0][0])

    def test_torchrun(self):
        port = str(free_port())
        self.together([{"RANK": str(rank), "WORLD_SIZE": "2", "LOCAL_RANK": str(rank), "LOCAL_WORLD_SIZE": "2",
                        "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port} for rank in range(2)])

    def test_slurm(self):
        job = str(os.getpid())
        self.together([{"SLURM_PROCID": str(rank), "SLURM_NTASKS": "2", "SLURM_LOCALID": str(rank), "SLURM_JOB_ID": job,
                        "SLURM_STEP_ID": "0", "SLURM_STEP_NUM_NODES": "1"} for rank in range(2)])

    def test_unknown_launcher(self):
        result = rondo(*self.QUICK, PMIX_RANK="1")
        self.assertEqual((result.returncode, result.stdout), (2, ""))
        self.assertIn("PMIX_RANK is '1'", result.stderr)
        self.assertIn("RONDO_RANK=$PMIX_RANK", result.stderr)
        result = rondo(*self.QUICK, MV2_COMM_WORLD_RANK="1")
        self.assertIn("MV2_COMM_WORLD_RANK=1", result.stderr)
        self.assertIn("RONDO_RANK, RONDO_SIZE and RONDO_RENDEZVOUS", result.stderr)

    def test_half_a_launcher(self):
        result = rondo(*self.QUICK, RONDO_RANK="1")
        self.assertEqual((result.returncode, result.stdout), (2, ""))
        self.assertIn("RONDO_SIZE", result.stderr)

    def test_world_of_one(self):
        result = rondo(*self.QUICK, OMPI_COMM_WORLD_RANK="0", OMPI_COMM_WORLD_SIZE="1")
        self.assertEqual(result.returncode, 0, result.stderr)
        self.assertIn("Open MPI says that there is 1 rank", result.stderr)

    def test_another_number_of_ranks(self):
        result = rondo(*self.QUICK, "--ranks", 4, RONDO_RANK="0", RONDO_SIZE="2", RONDO_RENDEZVOUS="file:///nowhere")
        self.assertEqual(result.returncode, 2)
        self.assertIn("--ranks 4", result.stderr)


class Info(unittest.TestCase):
    def test_info(self):
        result = rondo("info", RONDO_SECRET="not-for-you", RONDO_DEADLINE="7")
        self.assertEqual(result.returncode, 0, result.stderr)
        for line in ("version ", "host identity ", "cores ", "binding ", "memory ", "reduce kernels ", "transport tcp ", "interface lo ",
                     "limit ", "place "):
            self.assertRegex(result.stdout, rf"(?m)^{line} *\S")
        self.assertIn("RONDO_DEADLINE=7", result.stdout)
        self.assertIn("RONDO_SECRET=(a secret of 11 bytes)", result.stdout)
        self.assertNotIn("not-for-you", result.stdout + result.stderr)

    def test_place(self):
        result = rondo("info", RANK="1", WORLD_SIZE="4", MASTER_ADDR="127.0.0.1", MASTER_PORT="4711")
        self.assertRegex(result.stdout, r"place +rank 1 of 4, from torchrun, rendezvous tcp://127.0.0.1:4711")
        result = rondo("info", OMPI_COMM_WORLD_RANK="0", OMPI_COMM_WORLD_SIZE="1")
        self.assertRegex(result.stdout, r"place +rank 0 of 1, from Open MPI")

    def test_bad_environment_is_shown(self):
        result = rondo("info", RONDO_RANK="minus one", RONDO_SIZE="2")
        self.assertEqual(result.returncode, 2)
        self.assertRegex(result.stdout, r"place +.*RONDO_RANK.*minus one")
        result = rondo("info", "--interfaces", "eth99")
        self.assertEqual(result.returncode, 2)
        self.assertIn("eth99", result.stdout)


class Plan(unittest.TestCase):
    def test_operation(self):
        named = rondo("plan", "--operation", "reduce", "--ranks", 3)
        self.assertEqual(named.returncode, 0, named.stderr)
        self.assertIn("rank 2 of 3, ", named.stdout)
        self.assertEqual(rondo("plan", "reduce", "--ranks", 3).stdout, named.stdout)
        explained = rondo("plan", "all_gather", "--explain")
        self.assertEqual(explained.returncode, 0, explained.stderr)
        self.assertIn("all_gather of 64 MiB over 4 ranks", explained.stdout)
        for arguments in ["redcue"], ["reduce", "broadcast"]:
            result = rondo("plan", *arguments)
            self.assertEqual((result.returncode, result.stdout), (2, ""))
            self.assertIn(arguments[-1], result.stderr)

    def test_hosts(self):
        listed = rondo("plan", "--algorithm", "two_level", "--ranks-per-host", "3,1", "--rank", 0)
        self.assertEqual(listed.returncode, 0, listed.stderr)
        self.assertIn("rank 0 of 4, two_level all_reduce", listed.stdout)
        turns = rondo("plan", "--ranks", 4, "--hosts", 2, "--placement", "turns", "--rank", 0)
        self.assertIn("send slice 0 to 2", turns.stdout)
        proof = rondo("plan", "--check", "all_gather", "--algorithm", "two_level", "--ranks", 7)
        self.assertEqual((proof.returncode, proof.stdout.splitlines()[-1]), (0, "8 cases, 0 wrong"))
        explained = rondo("plan", "--explain", "--ranks", 8, "--ranks-per-host", 4, "--bytes", "64M")
        self.assertIn("over 8 ranks on 2 hosts", explained.stdout)
        self.assertRegex(explained.stdout, r"two_level .*chosen")
        for arguments in ["--ranks-per-host", "3,0"], ["--ranks-per-host", "3,1", "--ranks", 5], ["--hosts", "x"]:
            result = rondo("plan", *arguments)
            self.assertEqual((result.returncode, result.stdout), (2, ""))

    def test_explain(self):
        flags = ["--explain", "--bytes", "4M", "--hosts", 4, "--ranks-per-host", 1]
        table = rondo("plan", *flags)
        self.assertEqual(table.returncode, 0, table.stderr)
        self.assertIn("<- chosen", table.stdout)
        self.assertIn(" more: ", table.stdout)
        report = json.loads(rondo("plan", *flags, "--json", "-").stdout)
        self.assertEqual(report["candidates"][0]["why"], "chosen")
        self.assertEqual(report["ranks"], 4)
        with tempfile.TemporaryDirectory() as folder:
            path = os.path.join(folder, "constants.json")
            run = rondo("run", "-n", 2, "--", RONDO, "bench", "-b", 8, "-e", 8, *QUICK, "--write-constants", path)
            self.assertEqual(run.returncode, 0, run.stderr)
            with open(path) as file:
                constants = json.load(file)
            self.assertGreater(constants["host"]["latency_s"], 0)
            report = json.loads(rondo("plan", *flags, "--constants", path, "--json", "-").stdout)
            self.assertEqual(report["constants"]["host"], constants["host"])
            with open(path, "w") as file:
                file.write("{")
            refused = rondo("plan", *flags, "--constants", path)
            self.assertEqual(refused.returncode, 2)
            self.assertIn("it is not JSON", refused.stderr)
            refused = rondo("bench", "-b", 8, "-e", 8, *QUICK, RONDO_SIZE="1", RONDO_RANK="0", RONDO_CONSTANTS=path)
            self.assertNotIn("Traceback", refused.stderr)

    def simulate(self, *arguments):
        return rondo("plan", "--simulate", "--bytes", "1M", *arguments)

    def test_simulate(self):
        flags = ["--hosts", 4, "--ranks-per-host", 2, "--algorithm", "ring,tree", "--stragglers", 2,
                 "--straggler-factor", 3, "--seed", 7]
        table = self.simulate(*flags)
        self.assertEqual(table.returncode, 0, table.stderr)
        self.assertIn("all_reduce of 1 MiB over 8 ranks on 4 hosts", table.stdout)
        self.assertEqual(table.stdout, self.simulate(*flags).stdout)
        result = self.simulate(*flags, "--json", "-")
        report = json.loads(result.stdout)
        self.assertEqual([row["algorithm"] for row in report["results"]], ["ring", "tree"])
        self.assertEqual(len(report["results"][0]["stragglers"]), 2)
        ring = self.simulate("--ranks", 8, "--ranks-per-host", 4, "--algorithm", "ring", "--json", "-")
        self.assertEqual(json.loads(ring.stdout)["results"][0]["busiest_link_bytes"], 2 * 7 * (1 << 20) // 8)

    def test_simulate_refuses(self):
        for flags, message in [
                (["--hosts", "0"], "--hosts 0"),
                (["--ranks", 5, "--ranks-per-host", 2], "not a multiple"),
                (["--hosts", 3, "--ranks", 5], "--ranks 5"),
                (["--link-rate", "fast"], "--link-rate fast: not a rate"),
                (["--link-rate", "0mbit"], "--link-rate 0mbit: not a rate"),
                (["--link-latency", "50"], "--link-latency 50: not a time"),
                (["--frame-cost", "-3us"], "not a time"),
                (["--placement", "heap"], "blocks and turns"),
                (["--stragglers", 5], "stragglers is 5"),
                (["--straggler-factor", "0"], "--straggler-factor 0"),
                (["--algorithm", "ring,circle"], "circle"),
                (["--json", "/nowhere/at/all"], "/nowhere/at/all"),
                (["--check"], "--check")]:
            result = self.simulate(*flags)
            self.assertEqual(result.returncode, 2, flags)
            self.assertIn(message, result.stderr)
        large = self.simulate("--hosts", 100000, "--algorithm", "ring", "--stragglers", 1)
        self.assertEqual(large.returncode, 0)
        self.assertIn("2e+10 frames", large.stdout)


class Rondo(unittest.TestCase):
    def test_commands(self):
        self.assertRegex(rondo("--version").stdout, r"^rondo \d+\.\d+\.\d+\n$")
        self.assertEqual(rondo("--help").returncode, 0)
        for arguments in [], ["bnech"], ["--bogus"]:
            result = rondo(*arguments)
            self.assertEqual((result.returncode, result.stdout), (2, ""))
            self.assertIn("commands: bench, run, info, plan", result.stderr)

    def test_manual_names_every_flag(self):
        manual = (pathlib.Path(__file__).parents[2] / "tools" / "rondo.1").read_text()
        for command in "run", "info":  # those of bench: flags_test.py
            usage = rondo(command, "--help").stdout
            for flag in re.findall(r"--([a-z][a-z_-]+)", usage):
                self.assertTrue(flag == "help" or f"Fl -{flag}" in manual, f"rondo {command} --{flag}")


if __name__ == "__main__":
    main()
