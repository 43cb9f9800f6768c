# SPDX-License-Identifier: Apache-2.0
"""rondo info and rondo bench with GPUs, over the fake CUDA driver, and without a driver.
Usage: gpu_test.py PATH_OF_RONDO [unittest arguments]"""

import csv
import io
import json
import os
import re
import signal
import subprocess
import unittest

from program import COLUMNS, RONDO, all_cases, clean_environment, drawn_of, main, rondo

FAKE = "leaks=fail,gpus=2"
QUICK = ["-n", 2, "-w", 1]
OF_GPU = ["device", "device_name", "staging", "copy_to_gpu", "copy_to_host"]
COLLECTIVES = ["all_reduce", "reduce", "broadcast", "all_gather", "reduce_scatter", "gather", "scatter", "all_to_all", "all_gather_v",
               "reduce_scatter_v"]


def without_driver(*arguments):
    """As rondo(), where no CUDA driver is found. Skips on a machine that has a real one."""
    result = rondo(*arguments, LD_LIBRARY_PATH="", FAKE_CUDA="")
    if "cuda driver " in rondo("info", LD_LIBRARY_PATH="", FAKE_CUDA="").stdout:
        raise unittest.SkipTest("this machine has a CUDA driver")
    return result


class Info(unittest.TestCase):
    def info(self, settings=FAKE):
        result = rondo("info", FAKE_CUDA=settings)
        self.assertEqual(result.returncode, 0, result.stderr)
        return result.stdout

    def test_gpus(self):
        text = self.info()
        self.assertRegex(text, r"(?m)^cuda driver +for CUDA 13\.0$")
        for gpu in 0, 1:
            self.assertRegex(text, rf"(?m)^gpu {gpu} +Fake GPU, 0000:0{gpu + 1}:00\.0, GPU-[0-9a-f-]+, 4 GiB, compute capability 9\.0$")
            self.assertRegex(text, rf"(?m)^gpu {gpu} peers +it reaches the memory of GPU {1 - gpu} directly$")
            self.assertRegex(text, rf"(?m)^gpu {gpu} sharing +between processes as descriptors: yes; by legacy IPC handles: yes$")
            self.assertRegex(text, rf"(?m)^gpu {gpu} windows +memory of allocate\(\) and registered memory, for ranks on GPU 0, 1$")
        self.assertRegex(text, r"(?m)^gpu kernels +(in this build$|not in this build: it was made without nvcc)")

    def test_one_gpu_has_no_peers_to_list(self):
        text = self.info("leaks=fail,gpus=1")
        self.assertRegex(text, r"(?m)^gpu 0 +Fake GPU")
        self.assertNotIn("peers", text)

    def test_what_is_not_possible(self):
        text = self.info("leaks=fail,gpus=2,peers=0,export=0,ipc=0")
        self.assertRegex(text, r"(?m)^gpu 1 peers +it reaches the memory of no other GPU directly$")
        self.assertRegex(text, r"(?m)^gpu 1 sharing .*descriptors: no: its driver exports no memory.*handles: no: it shares the memory")
        self.assertRegex(text, r"(?m)^gpu 1 windows +none, for either reason above: operations go through the host$")

    def test_what_is_possible_in_part(self):
        text = self.info("leaks=fail,gpus=2,peers=0,export=0")
        self.assertRegex(text, r"(?m)^gpu 1 windows +registered memory, for ranks on GPU 1; ranks on GPU 0 have no peer access, so the host carries")
        text = self.info("leaks=fail,gpus=1,ipc=0")
        self.assertRegex(text, r"(?m)^gpu 0 windows +memory of allocate\(\), for ranks on GPU 0$")

    def test_an_exclusive_gpu(self):
        self.assertRegex(self.info("leaks=fail,mode=3"), r"(?m)^gpu 0 processes +one process at a time can use it: .*nvidia-smi -c DEFAULT")

    def test_a_driver_that_does_not_start(self):
        self.assertRegex(self.info("init=100"), r"(?m)^gpus +none: the CUDA driver does not start: cuInit: CUDA_ERROR_NO_DEVICE")

    def test_without_a_driver(self):
        result = without_driver("info")
        self.assertEqual(result.returncode, 0, result.stderr)
        self.assertRegex(result.stdout, r"(?m)^gpus +none: no CUDA driver here: libcuda.so.1: cannot open.*install the driver of the GPU$")


class Bench(unittest.TestCase):
    def bench(self, *arguments, status=0, settings=FAKE, **variables):
        result = rondo("bench", *arguments, FAKE_CUDA=settings, timeout=120, **variables)
        self.assertEqual(result.returncode, status, result.stdout + result.stderr)
        return result

    def test_every_collective(self):
        for number, operation in drawn_of(enumerate(COLLECTIVES), 3):
            transport, more = ("shm", "tcp")[number % 2], (["--allocate"], [], ["-m", 3])[number % 3]
            with self.subTest(operation=operation, transport=transport):
                text = self.bench(operation, "--device", "cuda", "--ranks", 3, "-b", 12, "-e", "120000", "-f", 100, "--no-ceiling",
                                  "--transport", transport, *more, *QUICK, "--json", "-").stdout
                document = json.loads(text)
                self.assertEqual((document["device"], document["device_name"]), ("cuda", "Fake GPU"))
                self.assertEqual((document["staging"], document["copy_to_gpu"]), ("pinned host memory", 0))
                self.assertEqual(len(document["results"]), 6)
                for row in document["results"]:
                    self.assertLessEqual(set(COLUMNS), set(row))
                    self.assertEqual((row["wrong"], row["ceiling_of"]), (0, "none"))
                    self.assertNotEqual(row["algorithm"], "direct")  # which works on shared host memory

    def test_threads_of_the_driver(self):
        """A driver starts a thread in the process that waits for the ranks. It takes none of the
        signals of that process, and if it does, the ends of ranks are noticed all the same."""
        with subprocess.Popen([RONDO, "bench", "--device", "cuda", "--ranks", "2", "-b", "8", "-e", "8", "-n", "1000000000", "--no-ceiling"],
                              env=clean_environment(FAKE_CUDA=FAKE + ",helper=1"), stdout=subprocess.PIPE, stderr=subprocess.DEVNULL) as process:
            try:
                process.stdout.readline()  # of rank 0
                tasks = [task for task in os.listdir(f"/proc/{process.pid}/task") if int(task) != process.pid]
                self.assertTrue(tasks)  # a sanitizer may have one too
                for task in tasks:
                    with open(f"/proc/{process.pid}/task/{task}/status", encoding="utf-8") as status:
                        blocked = int(re.search(r"SigBlk:\s*(\w+)", status.read())[1], 16)
                    for number in signal.SIGCHLD, signal.SIGINT, signal.SIGTERM, signal.SIGHUP:
                        self.assertTrue(blocked >> (number - 1) & 1, number)
            finally:
                process.kill()
        for _ in range(20 if all_cases() else 5):
            self.bench("--device", "cuda", "--ranks", 1, "-b", 8, "-e", 8, "--no-ceiling", *QUICK, settings=FAKE + ",helper=2")

    def test_table_and_ceiling(self):
        result = self.bench("--device", "cuda:1", "--ranks", 2, "-b", "64K", "-e", "64K", *QUICK, settings="leaks=fail,gpus=2,memory_mib=256")
        self.assertIn("# rank 0 uses GPU 1: Fake GPU, 256 MiB; staged through pinned host memory\n", result.stdout)
        self.assertRegex(result.stdout, r"# copies between GPU 1 and pinned memory reach [0-9.]+ GB/s to the GPU, [0-9.]+ GB/s to the host\n")
        self.assertIn("#   4 MiB within the GPUs reach", result.stdout)
        self.assertIn("# Wrong elements       : 0 OK", result.stdout)
        self.assertRegex(result.stdout, r"# Ceiling              : [0-9.]+ to [0-9.]+ GB/s; ")

    def test_records(self):
        arguments = ["--device", "cuda", "--ranks", 2, "-b", "64K", "-e", "64K", *QUICK]
        small = "leaks=fail,gpus=2,memory_mib=256"
        document = json.loads(self.bench(*arguments, "--json", "-", settings=small).stdout)
        self.assertGreater(document["copy_to_gpu"], 0)
        self.assertGreater(document["copy_to_host"], 0)
        for row in document["results"]:
            self.assertEqual(row["ceiling_of"], "gpu")
            # Each of n ranks must load and store S.
            self.assertAlmostEqual(row["ceiling_percent"], 100 * 2 * 2 * row["bytes"] / row["p50_us"] / 1e3 / row["ceiling"], places=3)
        record = next(csv.DictReader(io.StringIO(self.bench(*arguments, "--csv", "-", settings=small).stdout)))
        self.assertEqual([name for name in record if name in OF_GPU], OF_GPU)
        self.assertEqual((record["device"], record["device_name"], record["staging"]), ("cuda", "Fake GPU", "pinned host memory"))
        on_host = json.loads(self.bench("--ranks", 2, "-b", 64, "-e", 64, "--no-ceiling", *QUICK, "--json", "-").stdout)
        self.assertFalse(set(OF_GPU) & set(on_host))

    def test_direct(self):
        """The fake driver has no kernels of Rondo here, so the processor combines."""
        for memory, staging in drawn_of((([], "pinned host memory up to 16 KiB and slots of the GPU"), (["--allocate"], "pinned host memory up to 16 KiB"))):
            result = self.bench("--device", "cuda", "--algorithm", "direct", "--ranks", 2, "-b", 64, "-e", "64K", "-f", 1024, *memory, *QUICK, "--json", "-")
            record = json.loads(result.stdout)
            self.assertEqual(record["staging"], staging)
            self.assertEqual({row["algorithm"] for row in record["results"]}, {"direct"})
            self.assertEqual({row["wrong"] for row in record["results"]}, {0})

    def test_messages(self):
        small = "leaks=fail,gpus=2,memory_mib=256"
        one_way = ["sendrecv", "--one-way"]
        # The last number: messages that pass in the time of one; 0: a latency, which has no ceiling.
        cases = ((one_way, 2, "shm", ["--allocate"], 1), (one_way, 2, "tcp", [], 1), (one_way, 2, "shm", ["--no-ceiling"], 1),
                 (["latency"], 2, "shm", ["--allocate"], 0), (["bandwidth"], 2, "tcp", [], 1), (["bibandwidth"], 2, "shm", [], 2),
                 (["bibandwidth"], 2, "tcp", ["--allocate"], 2), (["rate"], 4, "shm", [], 2))
        for operation, ranks, transport, more, streams in drawn_of(cases, 3):
            with self.subTest(operation=operation, transport=transport, more=more):
                window = ["--window", 3] if streams else []
                result = self.bench(*operation, *window, "--device", "cuda", "--ranks", ranks, "--sizes", "12,1200,120000",
                                    "--transport", transport, *more, *QUICK, "--json", "-", settings=small)
                document = json.loads(result.stdout)
                self.assertEqual((document["operations"], document["ranks"]), (["_".join(operation).replace("--one-way", "one_way")], ranks))
                self.assertEqual((document["device"], document["staging"]), ("cuda", "pinned host memory"))
                self.assertEqual([row["bytes"] for row in document["results"]], [12, 1200, 120000])
                has_ceiling = streams > 0 and "--no-ceiling" not in more
                for row in document["results"]:
                    self.assertEqual((row["wrong"], row["algorithm"], row.get("window", 1)), (0, "messages", 3 if streams else 1))
                    self.assertGreater(row["p50_us"], 0)
                    self.assertGreater(row.get("latency_p50_us", 0 if operation == one_way else 1), 0)
                    self.assertEqual(row["ceiling_of"], "gpu" if has_ceiling else "none")
                    if has_ceiling:
                        # One rank loads a message and the other one stores it.
                        percent = 100 * streams * 2 * row["bytes"] / row["p50_us"] / 1e3 / row["ceiling"]
                        self.assertAlmostEqual(row["ceiling_percent"], percent, delta=0.001 + 0.01 * percent)

    def test_a_wrong_result_is_found(self):
        """A GPU that loses a copy: an operation fails, or the check finds it."""
        result = rondo("bench", "--device", "cuda", "--ranks", 2, "-b", "64K", "-e", "64K", "--no-ceiling", *QUICK,
                       FAKE_CUDA="gpus=2,fail=cuMemcpyDtoHAsync:2:700")
        self.assertEqual(result.returncode, 3, result.stdout + result.stderr)
        self.assertIn("CUDA_ERROR_ILLEGAL_ADDRESS", result.stderr)

    def test_bad_input(self):
        for device, operation, text in (
                ("cuda:7", "all_reduce", "--device cuda:7: there is no GPU 7; this process sees these: 0, 1"),
                ("cuda:0,0", "all_reduce", "names GPU 0 twice"),
                ("cuda:x", "all_reduce", "give a whole number"),
                ("cuda:", "all_reduce", "possible: cpu, cuda (all GPUs), cuda:0,1 (these GPUs)"),
                ("tpu", "all_reduce", "--device tpu: unknown; possible: cpu, cuda"),
                ("cuda", "barrier", "a barrier has no buffers")):
            with self.subTest(device=device, operation=operation):
                result = self.bench(operation, "--device", device, status=2)
                self.assertIn(text, result.stderr)
                self.assertEqual((result.stdout, result.stderr.count("\n")), ("", 1))
        result = self.bench("--device", "cuda", "-b", "4G", "-e", "4G", status=2)
        self.assertIn("2 ranks of GPU 0 need 8 GiB each for their buffers, and it has 4 GiB", result.stderr)
        result = self.bench("--device", "cuda", "--ranks", 3, status=2, settings="gpus=2,mode=3")
        self.assertIn("2 ranks would share GPU 0, but one process at a time can use it", result.stderr)

    def test_without_a_driver(self):
        result = without_driver("bench", "--device", "cuda")
        self.assertEqual(result.returncode, 2, result.stderr)
        self.assertRegex(result.stderr, r"^rondo bench: --device cuda: no CUDA driver here: .*; or leave --device out")

    def test_a_launched_rank_without_its_gpu(self):
        """Each rank of a launcher looks for its own GPU, and all of them end."""
        for wrong, code, text in ("gpus=1,memory_mib=256", 2, "there is no GPU 1"), ("gpus=2,fail=cuDevicePrimaryCtxRetain:1:2", 3, "OUT_OF_MEMORY"):
            result = rondo("run", "-n", 2, "--", "sh", "-c", f'test $RONDO_RANK = 0 || export FAKE_CUDA={wrong}; '
                           f'exec "{RONDO}" bench --device cuda:1 -b 1K -e 1K -n 2', FAKE_CUDA="gpus=2")
            self.assertEqual(result.returncode, code, result.stdout + result.stderr)
            self.assertIn("rank 1: ", result.stderr)
            self.assertIn(text, result.stderr)
            self.assertIn("another rank cannot use its GPU", result.stderr)


if __name__ == "__main__":
    main()
