# SPDX-License-Identifier: Apache-2.0
"""The driver of the comparison with peers, with scripts for ranks: its results, and that it always
ends and leaves no process behind."""

import contextlib
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import unittest
from pathlib import Path

COMPARE = Path(sys.argv.pop(1)).resolve()
FAKE_RANK = Path(__file__).resolve().parent / "fake_rank.py"
FAKE_MPIRUN = FAKE_RANK.with_name("fake_mpirun.py")
DEADLINE = 20


class Compare(unittest.TestCase):
    def setUp(self):
        self.folder = Path(tempfile.mkdtemp(prefix="rondo-compare-test-"))
        self.addCleanup(shutil.rmtree, self.folder)
        programs = self.folder / "bench" / "peers"
        programs.mkdir(parents=True)
        for name in ("gloo", "rondo"):
            shutil.copy(FAKE_RANK, programs / f"peer_{name}")
            (programs / f"peer_{name}").chmod(0o755)

    def add_mpi(self, *names: str) -> None:
        """Adds fake peers, each with its own mpirun."""
        for name in names:
            (self.folder / "bin").mkdir(exist_ok=True)
            for script, place in (FAKE_RANK, f"bench/peers/peer_{name}"), (FAKE_MPIRUN, f"bin/mpirun.{name}"):
                shutil.copy(script, self.folder / place)
                (self.folder / place).chmod(0o755)

    def told(self, name: str) -> str:
        return (self.folder / "bin" / f"mpirun.{name}.told").read_text()

    def start(self, *arguments: str, **faults: str) -> subprocess.Popen:
        environment = os.environ | {"TMPDIR": str(self.folder), "PATH": f"{self.folder / 'bin'}:{os.environ['PATH']}"}
        environment |= {f"FAKE_{name}": fault for name, fault in faults.items()}
        command = [sys.executable, "-B", str(COMPARE), "--build", str(self.folder), "--ranks", "2", "--sizes", "8,64K",
                   "--rounds", "3", "--seconds-per-turn", "0.001", "--timeout", "2", "--json", str(self.folder / "json")]
        return subprocess.Popen([*command, *arguments], env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)

    def compare(self, *arguments: str, **faults: str) -> tuple[int, str, list[dict]]:
        process = self.start(*arguments, **faults)
        output, _ = process.communicate(timeout=DEADLINE)
        self.assert_nothing_is_left()
        file = self.folder / "json"
        return process.returncode, output, json.loads(file.read_text())["rows"] if file.exists() else []

    def processes(self) -> list[int]:
        """The process ids of the ranks of this test that run."""
        found = []
        for entry in Path("/proc").glob("[0-9]*"):
            with contextlib.suppress(OSError):
                if str(self.folder / "bench").encode() in (entry / "cmdline").read_bytes():
                    found.append(int(entry.name))
        return found

    def assert_nothing_is_left(self):
        deadline = time.monotonic() + DEADLINE
        while self.processes() and time.monotonic() < deadline:
            time.sleep(0.05)
        self.assertEqual(self.processes(), [])
        self.assertEqual(list(self.folder.glob("rondo-compare-*")), [])

    def test_ratio_and_best_algorithm(self):
        status, output, rows = self.compare("--peers", "gloo", GLOO_US="300", RONDO_US="200")
        self.assertEqual(status, 0, output)
        self.assertEqual([row["bytes"] for row in rows], [8, 65536])
        for row in rows:
            self.assertEqual(set(row), {"operation", "transport", "ranks", "bytes", "rondo_us", "peers_us", "ratio"})
            self.assertEqual((row["operation"], row["transport"], row["ranks"]), ("all_reduce", "tcp", 2))
            self.assertEqual(row["rondo_us"], 400)  # the slower rank
            self.assertEqual(row["peers_us"], {"gloo_slow": 900, "gloo_fast": 600, "gloo": 600})
            self.assertEqual(row["ratio"], 1.5)
        self.assertIn("gloo_fast", output)

    def test_shared_memory_with_memory_of_the_library_and_of_the_user(self):
        self.add_mpi("openmpi")
        status, output, rows = self.compare("--transport", "shm", "--peers", "gloo,openmpi", "--sizes", "8", OPENMPI_US="300",
                                            RONDO_US="200", RONDO_ALLOCATED_US="100")
        self.assertEqual(status, 0, output)
        self.assertEqual(rows, [{"operation": "all_reduce", "transport": "shm", "ranks": 2, "bytes": 8, "rondo_us": 400,
                                 "peers_us": {"openmpi": 600}, "ratio": 1.5, "rondo_allocated_us": 200, "ratio_allocated": 3}])
        self.assertRegex(output, r"8 B +400\.0 +200\.0 +600\.0 +openmpi +1\.50 +\(1\.50 - 1\.50\) +3\.00 +\(3\.00 - 3\.00\)")
        self.assertNotIn("gloo", output)  # Gloo has no shared memory transport
        self.assertIn("--mca btl vader,self ", self.told("openmpi"))

    def test_an_earlier_build_is_a_peer_and_each_kind_of_memory_has_its_own_ratio(self):
        self.add_mpi("openmpi")
        before = self.folder / "before"
        shutil.copytree(self.folder / "bench", before / "bench")
        status, output, rows = self.compare("--before", str(before), "--peers", "openmpi", "--sizes", "8", OPENMPI_US="10",
                                            RONDO_US="200", RONDO_ALLOCATED_US="100", BEFORE_US="300", BEFORE_ALLOCATED_US="50")
        self.assertEqual(status, 0, output)
        by_transport = {row["transport"]: row for row in rows}
        self.assertEqual(by_transport["tcp"]["peers_us"], {"before": 600, "openmpi": 20})
        self.assertEqual(by_transport["shm"]["peers_us"], {"before": 600, "before_allocated": 100, "openmpi": 20})
        self.assertEqual([row["ratio"] for row in rows], [1.5, 1.5])
        self.assertEqual(by_transport["shm"]["ratio_allocated"], 0.5)

    def test_several_starts_count_as_one_measurement(self):
        before = self.folder / "before"
        shutil.copytree(self.folder / "bench", before / "bench")
        counted = self.folder / "starts"
        status, output, rows = self.compare("--before", str(before), "--transport", "tcp", "--sizes", "8", "--starts", "3",
                                            RONDO_US="200", RONDO_STARTS=str(counted), BEFORE_US="300")
        self.assertEqual(status, 0, output)
        self.assertEqual(len(counted.read_text().split()), 3)
        self.assertEqual(rows[0]["rondo_us"], 800)  # 400, 800, 1200
        self.assertEqual(rows[0]["ratio"], 0.75)
        self.assertIn("(0.50 - 1.50)", output)
        self.assertIn("median of 9 rounds", output)

    def test_a_library_that_fails_in_one_start_is_not_started_again(self):
        status, output, rows = self.compare("--peers", "gloo", "--transport", "tcp", "--sizes", "8", "--starts", "2", GLOO="die")
        self.assertEqual(status, 1, output)
        self.assertEqual(rows[0]["peers_us"], {})
        self.assertEqual(output.count("gloo: "), 1, output)

    def test_a_table_for_each_transport(self):
        self.add_mpi("openmpi")
        status, output, rows = self.compare("--peers", "gloo,openmpi", "--sizes", "8")
        self.assertEqual(status, 0, output)
        self.assertEqual([(row["transport"], sorted(row["peers_us"])) for row in rows],
                         [("tcp", ["gloo", "gloo_fast", "gloo_slow", "openmpi"]), ("shm", ["openmpi"])])

    def test_mpich_in_shared_memory_needs_a_core_for_each_rank(self):
        self.add_mpi("openmpi", "mpich")
        cores = os.sched_getaffinity(0)
        os.sched_setaffinity(0, {min(cores)})
        self.addCleanup(os.sched_setaffinity, 0, cores)
        status, output, rows = self.compare("--transport", "shm", "--sizes", "8")
        self.assertEqual(status, 0, output)
        self.assertEqual(list(rows[0]["peers_us"]), ["openmpi"])
        self.assertIn("mpich: spins without yielding", output)

    def test_a_fault_with_allocated_memory_leaves_the_other_ratio(self):
        self.add_mpi("openmpi")
        status, output, rows = self.compare("--transport", "shm", "--peers", "openmpi", "--sizes", "8", RONDO_ALLOCATED="wrong")
        self.assertEqual(status, 1)
        self.assertIn("rondo_allocated: wrong element 3", output)
        self.assertEqual((rows[0]["ratio"], rows[0]["rondo_allocated_us"], rows[0]["ratio_allocated"]), (1, None, None))

    def test_a_peer_that_is_not_built_is_named(self):
        status, output, rows = self.compare("--peers", "gloo,mpich", "--transport", "tcp")
        self.assertEqual(status, 0, output)
        self.assertIn("mpich: not installed", output)
        self.assertNotIn("mpich", rows[0]["peers_us"])

    def test_faults_of_a_peer_are_named_and_the_run_goes_on(self):
        for fault, said in {
            "no_start": "does not start: cannot find the network",
            "same_rank": "started as something else than 2 ranks",
            "hang": "does not finish in 2 s",
            "die": "ended: out of luck",
            "fail": "failed rank 1 lost rank 0",
            "wrong": "wrong element 3: 1 instead of 2",
        }.items():
            with self.subTest(fault):
                _, output, rows = self.compare("--peers", "gloo", GLOO=fault)
                self.assertIn(f"gloo: {said}", output)
                self.assertEqual([(row["rondo_us"], row["peers_us"], row["ratio"]) for row in rows], [(200, {}, None)] * 2)

    def test_a_fault_of_rondo_fails_the_run_and_the_peers_go_on(self):
        status, output, rows = self.compare("--peers", "gloo", RONDO="hang")
        self.assertEqual(status, 1)
        self.assertIn("rondo: does not finish in 2 s", output)
        self.assertEqual([(row["rondo_us"], row["peers_us"]["gloo"], row["ratio"]) for row in rows], [(None, 200, None)] * 2)

    def test_ranks_that_will_not_end_are_ended(self):
        status, output, _ = self.compare("--peers", "gloo", GLOO="no_end")
        self.assertEqual(status, 0, output)

    def test_a_signal_ends_everything(self):
        for number in (signal.SIGINT, signal.SIGTERM):
            with self.subTest(number):
                process = self.start("--peers", "gloo", "--timeout", "1000", GLOO="hang")
                deadline = time.monotonic() + DEADLINE
                while len(self.processes()) < 4 and time.monotonic() < deadline:
                    time.sleep(0.05)
                process.send_signal(number)
                output, _ = process.communicate(timeout=DEADLINE)
                self.assertEqual(process.returncode, 128 + number, output)
                self.assert_nothing_is_left()

    def test_bad_arguments_say_what_is_possible(self):
        for arguments, said in {
            ("--peers", "nccl"): "there are gloo, openmpi, mpich",
            ("--sizes", "10"): "multiple of 4",
            ("--sizes", "8,x"): "no size",
            ("--ranks", "1"): "give 2 to 512",
            ("--transport", "pigeon"): "there are tcp, shm",
            ("--transport", "shm", "--peers", "gloo"): "nothing to compare with over shm",
            ("--before", "/nowhere"): "has no bench/peers/peer_rondo",
            ("--rounds", "0"): "--rounds",
            ("--timeout", "-1"): "--timeout",
        }.items():
            with self.subTest(arguments):
                status, output, _ = self.compare(*arguments)
                self.assertEqual(status, 2)
                self.assertIn(said, output)


if __name__ == "__main__":
    unittest.main()
