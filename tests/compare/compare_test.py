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

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "support"))
from at_once import by_test  # noqa: E402
from cases import draws, drawn_of  # noqa: E402

COMPARE, RONDO = Path(sys.argv.pop(1)).resolve(), Path(sys.argv.pop(1)).resolve()
FAKE_RANK = Path(__file__).resolve().parent / "fake_rank.py"
FAKE_MPIRUN = FAKE_RANK.with_name("fake_mpirun.py")
DEADLINE = 60
# A library that hangs is given up after this many seconds. On a busy machine its start takes some.
GIVEN_UP = 5
KEYS = {"operation", "transport", "ranks", "bytes", "rondo_us", "rondo_mean_us", "rondo_p90_us", "p90_over_median", "rounds",
        "peers_us", "peers_mean_us", "best", "best_mean", "ratio", "ratio_mean", "strangers", "pin", "fresh"}
KEYS_SHM = KEYS | {"rondo_allocated_us", "rondo_allocated_mean_us", "rondo_allocated_p90_us", "p90_over_median_allocated",
                   "rounds_allocated", "ratio_allocated", "ratio_mean_allocated", "ceiling_us", "ceiling_mean_us", "percent_of_ceiling"}


def all_processes() -> list[int]:
    return [int(entry.name) for entry in Path("/proc").glob("[0-9]*")]


def command_of(process: int) -> bytes:
    """Empty when the process has ended, even if nobody has waited for it."""
    with contextlib.suppress(OSError):
        return Path(f"/proc/{process}/cmdline").read_bytes()
    return b""


def stat_of(process: int) -> list[str]:
    """The fields from the state on; empty when the process has ended."""
    with contextlib.suppress(OSError):
        return Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()
    return []


class CompareCase(unittest.TestCase):
    def setUp(self):
        self.folder = Path(tempfile.mkdtemp(prefix="rondo-compare-test-"))
        self.addCleanup(shutil.rmtree, self.folder)
        programs = self.folder / "bench" / "peers"
        programs.mkdir(parents=True)
        for name in ("gloo", "rondo", "ceiling"):
            shutil.copy(FAKE_RANK, programs / f"peer_{name}")
            (programs / f"peer_{name}").chmod(0o755)
        (self.folder / "tools").mkdir()
        (self.folder / "tools" / "rondo").symlink_to(RONDO)

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
                   "--rounds", "3", "--seconds-per-turn", "0.001", "--timeout", "20", "--json", str(self.folder / "json")]
        return subprocess.Popen([*command, *map(str, arguments)], env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)

    def compare(self, *arguments: str, **faults: str) -> tuple[int, str, list[dict]]:
        process = self.start(*arguments, **faults)
        output, _ = process.communicate(timeout=DEADLINE)
        self.assert_nothing_is_left()
        file = self.folder / "json"
        return process.returncode, output, json.loads(file.read_text())["rows"] if file.exists() else []

    def results(self, *arguments: str, **faults: str) -> tuple[str, list[dict]]:
        """The output and the rows of a run that goes well."""
        status, output, rows = self.compare(*arguments, **faults)
        self.assertEqual(status, 0, output)
        return output, rows

    def processes(self) -> list[int]:
        """The process ids of the ranks of this test that run, and of their launchers."""
        return [one for one in all_processes() if str(self.folder / "bench").encode() in command_of(one)]

    def ranks(self) -> list[int]:
        launchers = (str(self.folder / "tools").encode(), str(self.folder / "bin").encode())
        return [one for one in self.processes() if not any(launcher in command_of(one) for launcher in launchers)]

    def assert_nothing_is_left(self):
        deadline = time.monotonic() + DEADLINE
        while self.processes() and time.monotonic() < deadline:
            time.sleep(0.05)
        self.assertEqual(self.processes(), [])
        self.assertEqual(list(self.folder.glob("rondo-compare-*")), [])

    def check_fault_is_named(self, fault: str, said: str) -> None:
        """The fault is named, and the run goes on."""
        _, output, rows = self.compare("--peers", "gloo", "--timeout", GIVEN_UP if fault == "hang" else "20", GLOO=fault)
        self.assertIn(f"gloo: {said}", output)
        self.assertEqual([(row["rondo_us"], row["peers_us"], row["ratio"]) for row in rows], [(200, {}, None)] * 2)


@draws(4)
class Results(CompareCase):
    def test_ratio_and_best_algorithm(self):
        output, rows = self.results("--peers", "gloo", GLOO_US="300", RONDO_US="200")
        self.assertEqual([row["bytes"] for row in rows], [8, 65536])
        for row in rows:
            self.assertEqual(set(row), KEYS)
            self.assertEqual((row["operation"], row["transport"], row["ranks"]), ("all_reduce", "tcp", 2))
            self.assertEqual(row["rondo_us"], 400)  # the slower rank
            self.assertEqual(row["peers_us"], {"gloo_slow": 900, "gloo_fast": 600, "gloo": 600})
            self.assertEqual(row["ratio"], 1.5)
        self.assertIn("gloo_fast", output)

    def test_shared_memory_with_memory_of_the_library_and_of_the_user(self):
        self.add_mpi("openmpi")
        output, rows = self.results("--transport", "shm", "--peers", "gloo,openmpi", "--sizes", "8", OPENMPI_US="300",
                                    RONDO_US="200", RONDO_ALLOCATED_US="100", CEILING_US="50")
        self.assertEqual(set(rows[0]), KEYS_SHM)
        for key, value in {"rondo_us": 400, "rondo_mean_us": 400, "peers_us": {"openmpi": 600}, "peers_mean_us": {"openmpi": 600},
                           "ratio": 1.5, "ratio_mean": 1.5, "rondo_allocated_us": 200, "ratio_allocated": 3, "ratio_mean_allocated": 3,
                           "rounds": [400] * 6, "ceiling_us": 100, "percent_of_ceiling": 25, "best": "openmpi"}.items():
            self.assertEqual(rows[0][key], value, key)
        self.assertRegex(output, r"8 B +400 +400 +200 +200 +600 +600 +100 +100 +1\.00 +openmpi +1\.50 +1\.50 +\(1\.50-1\.50\) +3\.00 +3\.00 +25\n")
        self.assertNotIn("gloo", output)  # Gloo has no shared memory transport
        self.assertIn("--mca btl vader,self ", self.told("openmpi"))

    def test_an_earlier_build_is_a_peer_and_each_kind_of_memory_has_its_own_ratio(self):
        self.add_mpi("openmpi")
        before = self.folder / "before"
        shutil.copytree(self.folder / "bench", before / "bench")
        _, rows = self.results("--before", str(before), "--peers", "openmpi", "--sizes", "8", OPENMPI_US="10",
                               RONDO_US="200", RONDO_ALLOCATED_US="100", BEFORE_US="300", BEFORE_ALLOCATED_US="50")
        by_transport = {row["transport"]: row for row in rows}
        self.assertEqual(by_transport["tcp"]["peers_us"], {"before": 600, "openmpi": 20})
        self.assertEqual(by_transport["shm"]["peers_us"], {"before": 600, "before_allocated": 100, "openmpi": 20})
        self.assertEqual([row["ratio"] for row in rows], [1.5, 1.5])
        self.assertEqual(by_transport["shm"]["ratio_allocated"], 0.5)

    def test_several_starts_count_as_one_measurement(self):
        before = self.folder / "before"
        shutil.copytree(self.folder / "bench", before / "bench")
        counted = self.folder / "starts"
        output, rows = self.results("--before", str(before), "--transport", "tcp", "--sizes", "8", "--starts", "3",
                                    RONDO_US="200", RONDO_STARTS=str(counted), BEFORE_US="300")
        self.assertEqual(len(counted.read_text().split()), 3)
        self.assertEqual(rows[0]["rondo_us"], 800)  # 400, 800, 1200
        self.assertEqual(rows[0]["ratio"], 0.75)
        self.assertIn("(0.50-1.50)", output)
        self.assertIn("medians of 9 rounds", output)

    def test_a_library_that_fails_in_one_start_is_not_started_again(self):
        status, output, rows = self.compare("--peers", "gloo", "--transport", "tcp", "--sizes", "8", "--starts", "2", GLOO="die")
        self.assertEqual(status, 1, output)
        self.assertEqual(rows[0]["peers_us"], {})
        self.assertEqual(output.count("gloo: "), 1, output)

    def test_a_table_for_each_transport(self):
        self.add_mpi("openmpi")
        _, rows = self.results("--peers", "gloo,openmpi", "--sizes", "8")
        self.assertEqual([(row["transport"], sorted(row["peers_us"])) for row in rows],
                         [("tcp", ["gloo", "gloo_fast", "gloo_slow", "openmpi"]), ("shm", ["openmpi"])])

    def test_mpich_in_shared_memory_needs_a_core_for_each_rank(self):
        self.add_mpi("openmpi", "mpich")
        cores = os.sched_getaffinity(0)
        os.sched_setaffinity(0, {min(cores)})
        self.addCleanup(os.sched_setaffinity, 0, cores)
        output, rows = self.results("--transport", "shm", "--sizes", "8")
        self.assertEqual(list(rows[0]["peers_us"]), ["openmpi", "openmpi-nocma"])
        self.assertIn("mpich: spins without yielding", output)

    def test_a_fault_with_allocated_memory_leaves_the_other_ratio(self):
        self.add_mpi("openmpi")
        status, output, rows = self.compare("--transport", "shm", "--peers", "openmpi", "--sizes", "8", RONDO_ALLOCATED="wrong")
        self.assertEqual(status, 1)
        self.assertIn("rondo_allocated: wrong element 3", output)
        self.assertEqual((rows[0]["ratio"], rows[0]["rondo_allocated_us"], rows[0]["ratio_allocated"]), (1, None, None))

    def test_a_peer_that_is_not_built_is_named(self):
        output, rows = self.results("--peers", "gloo,mpich", "--transport", "tcp")
        self.assertIn("mpich: not installed", output)
        self.assertNotIn("mpich", rows[0]["peers_us"])

    def test_means_and_the_spread_of_rounds_are_computed(self):
        self.add_mpi("openmpi")
        counted = self.folder / "starts"
        output, rows = self.results("--peers", "openmpi,gloo", "--transport", "tcp", "--sizes", "8", "--starts", "3", "--rounds", "1",
                                    OPENMPI="outlier", OPENMPI_US="40", GLOO_US="100", RONDO_US="200", RONDO_STARTS=str(counted))
        row = rows[0]
        # All iterations take 80 us but the first, which is slow because of the faster rank.
        self.assertEqual((row["peers_us"]["openmpi"], row["best"], row["best_mean"]), (80, "openmpi", "gloo_fast"))
        self.assertAlmostEqual(row["peers_mean_us"]["openmpi"], 6 * 80)
        self.assertEqual((row["peers_mean_us"]["gloo_fast"], row["peers_mean_us"]["gloo"]), (200, 200))
        # Rondo's rank 0 takes 2, 4, 6 times 200 us in the three starts, before each of three peers.
        self.assertEqual(row["rounds"], [400] * 3 + [800] * 3 + [1200] * 3)
        self.assertEqual((row["rondo_us"], row["rondo_p90_us"], row["p90_over_median"]), (800, 1200, 1.5))
        self.assertEqual((row["ratio"], row["ratio_mean"]), (0.1, 0.25))
        self.assertIn(" 1.50  openmpi", output)

    def test_open_mpi_without_single_copies_is_a_peer_of_its_own(self):
        self.add_mpi("openmpi")
        output, rows = self.results("--transport", "shm", "--peers", "openmpi,openmpi-nocma", "--sizes", "8")
        self.assertEqual(set(rows[0]["peers_us"]), {"openmpi", "openmpi-nocma"})
        self.assertEqual(self.told("openmpi").count("--mca btl_vader_single_copy_mechanism none"), 1)
        status, output, _ = self.compare("--transport", "tcp", "--peers", "openmpi-nocma", "--sizes", "8")
        self.assertIn("nothing to compare with over tcp", output)

    def test_the_ceiling_is_no_peer(self):
        self.add_mpi("openmpi")
        _, rows = self.results("--transport", "shm", "--peers", "openmpi", "--sizes", "8", CEILING_US="1")
        self.assertEqual((rows[0]["best"], rows[0]["peers_us"], rows[0]["ceiling_us"]), ("openmpi", {"openmpi": 200}, 2))
        _, rows = self.results("--transport", "shm", "--peers", "openmpi", "--sizes", "8", CEILING="wrong")
        self.assertEqual((rows[0]["ceiling_us"], rows[0]["percent_of_ceiling"]), (None, None))

    def test_pinned_ranks_have_a_core_each(self):
        self.add_mpi("openmpi", "mpich")
        told = self.folder / "told"
        status, output, rows = self.compare("--pin", "--transport", "tcp", "--ranks", "3", "--sizes", "8", TOLD=str(told))
        self.assertEqual((status, rows[0]["pin"]), (0, True), output)
        self.assertIn("ranks bound to cores", output)
        allowed = os.sched_getaffinity(0)
        places = {tuple(line.split("|")[:4]) for line in told.read_text().splitlines()}
        for name in ("rondo", "gloo"):
            of_rank = {int(rank): set(json.loads(cores)) for which, _, rank, cores in places if which == name}
            self.assertEqual(set(of_rank), {0, 1, 2})
            for cores in of_rank.values():
                self.assertLess(cores, allowed) if len(allowed) > 1 else self.assertEqual(cores, allowed)
            self.assertEqual(of_rank[0] & of_rank[1], set() if len(allowed) > 1 else allowed)
        self.assertIn("--bind-to core:overload-allowed", self.told("openmpi"))
        self.assertIn("-bind-to core", self.told("mpich"))

    def test_the_ranks_of_a_library_share_a_session_without_strangers(self):
        self.add_mpi("openmpi")
        told = self.folder / "told"
        before = self.folder / "before"
        shutil.copytree(self.folder / "bench", before / "bench")  # without a `rondo run` of its own
        for arguments in (), ("--pin",):
            told.write_text("")
            self.results(*arguments, "--before", str(before), "--peers", "gloo,openmpi", "--sizes", "8",
                         "--rounds", "1", TOLD=str(told))
            sessions: dict[str, set[tuple[str, str]]] = {}
            for line in told.read_text().splitlines():
                name, _, rank, _, session = line.split("|")
                sessions.setdefault(name, set()).add((rank, session))
            self.assertEqual(set(sessions), {"rondo", "rondo_allocated", "before", "before_allocated", "gloo", "openmpi", "ceiling"})
            jobs = {"rondo": 2, "before": 2, "openmpi": 2}  # tcp and shm; the others are started once
            for name, found in sessions.items():
                self.assertEqual(len({session for _, session in found}), jobs.get(name, 1), name)
                self.assertEqual({rank for rank, _ in found}, {"0", "1"}, name)
            everyone = [session for found in sessions.values() for session in {one for _, one in found}]
            self.assertEqual(len(set(everyone)), len(everyone))

    def test_rondo_is_bound_as_rondo_run_binds_and_gloo_is_not(self):
        told = self.folder / "told"
        allowed = sorted(os.sched_getaffinity(0))
        self.results("--transport", "tcp", "--peers", "gloo", "--sizes", "8", "--rounds", "1", TOLD=str(told))
        places: dict[str, set[str]] = {}
        for line in told.read_text().splitlines():
            places.setdefault(line.split("|")[0], set()).add(line.split("|")[3])
        self.assertEqual(places["gloo"], {str(allowed)})
        # In one write: print() makes two where PYTHONUNBUFFERED is set, and both ranks write there.
        tell = "import os; os.write(1, str(sorted(os.sched_getaffinity(0))).encode() + bytes([10]))"
        bound = subprocess.run([RONDO, "run", "-n", "2", "--", sys.executable, "-c", tell], capture_output=True, text=True, check=True)
        self.assertEqual(places["rondo"], set(bound.stdout.splitlines()))

    def test_fresh_buffers_are_asked_of_every_library(self):
        told = self.folder / "told"
        for arguments, command in (("--fresh",), "fresh"), ((), "turn"):
            told.write_text("")
            status, output, rows = self.compare(*arguments, "--peers", "gloo", "--sizes", "8", TOLD=str(told))
            self.assertEqual((status, rows[0]["fresh"]), (0, bool(arguments)), output)
            self.assertEqual("inputs written anew" in output, bool(arguments))
            commands = {tuple(line.split("|")[:2]) for line in told.read_text().splitlines()}
            self.assertLessEqual({("rondo", command), ("gloo", command)}, commands)
            # The first turn only finds the number of iterations.
            self.assertEqual({said for _, said in commands}, {command})


@draws(2)
class FaultsOfAPeer(CompareCase):
    def test_no_start(self):
        self.check_fault_is_named("no_start", "does not start: cannot find the network")

    def test_same_rank(self):
        self.check_fault_is_named("same_rank", "started as something else than 2 ranks")

    def test_hang(self):
        self.check_fault_is_named("hang", f"does not finish in {GIVEN_UP} s")

    def test_die(self):
        self.check_fault_is_named("die", "ended: out of luck")

    def test_fail(self):
        self.check_fault_is_named("fail", "failed rank 1 lost rank 0")

    def test_wrong(self):
        self.check_fault_is_named("wrong", "wrong element 3: 1 instead of 2")


@draws(2)
class Faults(CompareCase):
    def test_a_fault_of_rondo_fails_the_run_and_the_peers_go_on(self):
        status, output, rows = self.compare("--peers", "gloo", "--timeout", GIVEN_UP, RONDO="hang")
        self.assertEqual(status, 1)
        self.assertIn(f"rondo: does not finish in {GIVEN_UP} s", output)
        self.assertEqual([(row["rondo_us"], row["peers_us"]["gloo"], row["ratio"]) for row in rows], [(None, 200, None)] * 2)

    def test_ranks_that_will_not_end_are_ended(self):
        self.results("--peers", "gloo", GLOO="no_end")

    def test_a_signal_ends_everything(self):
        for number in (signal.SIGINT, signal.SIGTERM):
            with self.subTest(number):
                process = self.start("--peers", "gloo", "--timeout", "1000", GLOO="hang")
                deadline = time.monotonic() + DEADLINE
                while len(self.ranks()) < 4 and time.monotonic() < deadline:
                    time.sleep(0.05)
                process.send_signal(number)
                output, _ = process.communicate(timeout=DEADLINE)
                self.assertEqual(process.returncode, 128 + number, output)
                self.assert_nothing_is_left()

    def strangers(self, driver: int) -> list[int]:
        """The busy processes that the driver has started."""
        return [one for one in all_processes() if b"strangers.py" in command_of(one) and stat_of(one)[1:2] == [str(driver)]]

    def wait_for(self, condition) -> bool:
        """Whether the condition holds at one time. A process that starts has no command line for a
        moment, so it may not hold again at once."""
        deadline = time.monotonic() + DEADLINE
        while not (holds := condition()) and time.monotonic() < deadline:
            time.sleep(0.05)
        return holds

    def test_strangers_compute_beside_the_libraries_and_end_with_the_driver(self):
        status, output, rows = self.compare("--peers", "gloo", "--sizes", "8", "--strangers", "2")
        self.assertEqual((status, rows[0]["strangers"]), (0, 2), output)
        self.assertIn("2 ranks, 2 strangers:", output)
        for number in (signal.SIGTERM, signal.SIGKILL):
            with self.subTest(number):
                process = self.start("--peers", "gloo", "--timeout", "1000", "--strangers", "2", GLOO="hang")
                self.assertTrue(self.wait_for(lambda: len(self.strangers(process.pid)) == 2 and len(self.ranks()) == 4))
                running = self.strangers(process.pid)
                busy = lambda one: int(stat_of(one)[11]) > 10  # hundredths of a second in user mode
                self.assertTrue(self.wait_for(lambda: all(map(busy, running))))
                process.send_signal(number)
                process.communicate(timeout=DEADLINE)
                self.assertTrue(self.wait_for(lambda: not any(map(command_of, running))))
                # Scripts that hang do not watch their driver; their launcher may end them just now.
                for rank in self.processes():
                    with contextlib.suppress(ProcessLookupError):
                        os.kill(rank, signal.SIGKILL)
                self.assertTrue(self.wait_for(lambda: not self.processes()))
                for folder in self.folder.glob("rondo-compare-*"):
                    shutil.rmtree(folder)

    def test_a_stranger_that_ends_spoils_the_run(self):
        process = self.start("--peers", "gloo", "--timeout", GIVEN_UP, "--strangers", "1", GLOO="hang")
        self.assertTrue(self.wait_for(lambda: self.strangers(process.pid)))
        os.kill(self.strangers(process.pid)[0], signal.SIGKILL)
        output, _ = process.communicate(timeout=DEADLINE)
        self.assertEqual(process.returncode, 1)
        self.assertIn("a stranger ended with status -9", output)


class Arguments(CompareCase):
    def test_bad_arguments_say_what_is_possible(self):
        for arguments, said in drawn_of({
            ("--peers", "nccl"): "there are gloo, openmpi, openmpi-nocma, mpich",
            ("--sizes", "10"): "multiple of 4",
            ("--sizes", "8,x"): "no size",
            ("--ranks", "1"): "give 2 to 512",
            ("--transport", "pigeon"): "there are tcp, shm",
            ("--transport", "shm", "--peers", "gloo"): "nothing to compare with over shm",
            ("--before", "/nowhere"): "has no bench/peers/peer_rondo",
            ("--rounds", "0"): "--rounds",
            ("--strangers", "-1"): "--strangers",
            ("--strangers", "many"): "give 0 to 1024",
            ("--timeout", "-1"): "--timeout",
        }.items(), 4):
            with self.subTest(arguments):
                status, output, _ = self.compare(*arguments)
                self.assertEqual(status, 2)
                self.assertIn(said, output)


load_tests = by_test(4)

if __name__ == "__main__":
    unittest.main(verbosity=2)
