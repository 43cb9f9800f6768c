# SPDX-License-Identifier: Apache-2.0
"""Tests and figures on a machine with a GPU: ./dev gpu

    gpu.py [--build FOLDER | --binaries FOLDER] [--fake] [--quick] [--json FILE] [--log FILE]
           [--seconds SECONDS] [--each NUMBER] [NAME...]
    gpu.py --pack FOLDER [--build FOLDER]

Runs the cases whose names contain a NAME, or all, in the order of cases(). The last line is
"N passed, N failed[, N skipped]"; a test program counts as its test cases. The exit status is 1
when anything failed, and 77 when there is no GPU here.

--fake runs over the fake CUDA driver of tests/device/fake, on any machine; --quick runs a few of
the cases. --json writes results and figures, --log the whole output of what failed. --seconds
limits the whole run: cases that would begin later count as skipped. --each runs every test of a
test program in a process of its own, so many at a time: one that hangs or crashes costs no other.
--pack copies the programs and their libraries into a
folder, which --binaries takes on another machine: that needs the CUDA driver, Python, and a C
library that is not older.
"""

import argparse
import concurrent.futures
import contextlib
import datetime
import json
import os
import platform
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

sys.path[:0] = [str(Path(__file__).resolve().parent.parent / folder) for folder in ("", "support")]
from cases import all_cases, drawn_of  # noqa: E402
from summary import catch_cases  # noqa: E402

SKIPPED = 77  # the exit status with which a test tells meson that it could not run
PROGRAMS = ("tools/rondo", "tests/bn/test_bn", "tests/device/test_device", "tests/gpu/batch_norm_bench",
            "tests/gpu/gpu_rank", "tests/gpu/test_gpu", "tests/grad/test_grad", "tests/table/test_table")  # in the build folder
FAKE = "tests/device/fake"
COLLECTIVES = ("all_reduce", "reduce", "broadcast", "all_gather", "reduce_scatter", "gather", "scatter", "all_to_all",
               "all_gather_v", "reduce_scatter_v")
# Libraries of the other machine itself.
OF_SYSTEM = re.compile(r"^(ld-linux|libc\.so|libm\.so|libdl\.so|librt\.so|libpthread\.so|libcuda\.so|linux-vdso)")
LAUNCHER = re.compile(r"^(RONDO_(?!TEST_)|OMPI_|PMI|PMIX_|SLURM_|TORCHELASTIC_|MPI_)|^(RANK|WORLD_SIZE|LOCAL_RANK|MASTER_\w+)$")
RENDEZVOUS = "rendezvous"
LONGEST_TEST = 100  # seconds, where each test has a process of its own


class Failure(Exception):
    """A case failed; the text says why."""


def threads_of(session):
    """Where the threads of the processes of a session are: a line each."""
    lines = []
    for task in sorted(Path("/proc").glob("[0-9]*/task/[0-9]*")):
        with contextlib.suppress(OSError, ValueError, IndexError):
            stat = (task / "stat").read_text(encoding="utf-8")
            if int(stat.rpartition(")")[2].split()[3]) != session:
                continue
            told = dict(line.split(":", 1) for line in (task / "status").read_text(encoding="utf-8").splitlines() if ":" in line)
            call = "?"
            with contextlib.suppress(OSError):
                call = (task / "syscall").read_text(encoding="utf-8").split()[0]
            lines.append(f"process {task.parts[2]} thread {task.name} {told['Name'].strip()}: {told['State'].strip()}, system call {call}, "
                         f"blocked signals {told['SigBlk'].strip()}, {told['voluntary_ctxt_switches'].strip()} switches")
    return "\n".join(lines) + "\n"


class Machine:
    """Where the programs are, and their environment."""

    def __init__(self, arguments):
        self.fake, self.quick, self.each = arguments.fake, arguments.quick, arguments.each
        self.end = time.monotonic() + arguments.seconds
        self.binaries = Path(arguments.binaries).resolve() if arguments.binaries else None
        self.build = Path(arguments.build).resolve()
        environment = {name: value for name, value in os.environ.items() if not LAUNCHER.match(name)}
        if not self.quick:
            environment.setdefault("RONDO_TEST_CASES", "all")
        libraries = []
        if self.fake:
            libraries.append(str(self.build / FAKE))
            environment["FAKE_CUDA"] = "leaks=fail,gpus=2"
            environment["RONDO_TEST_OLD_CUDA"] = str(self.build / "tests/device/old")
        if self.binaries:
            libraries.append(str(self.binaries / "lib"))
            environment["RONDO_TEST_RANK_PROGRAM"] = str(self.binaries / "gpu_rank")
        environment["LD_LIBRARY_PATH"] = ":".join(libraries + [environment.get("LD_LIBRARY_PATH", "")]).strip(":")
        self.environment = environment

    def path(self, name):
        """The path of a program by its last name."""
        if self.binaries:
            return self.binaries / name
        return next(self.build / path for path in PROGRAMS if path.endswith("/" + name))

    def left(self):
        """The seconds that are left of the whole run."""
        return self.end - time.monotonic()

    def run(self, name, *arguments, seconds=120, **variables):
        """The output of a program, which must succeed."""
        return self.run_command([str(self.path(name)), *map(str, arguments)], seconds=seconds, **variables)

    def run_command(self, command, seconds, **variables):
        """It and its ranks end here, whatever happens."""
        seconds = max(1, min(seconds, self.left()))
        with tempfile.TemporaryFile() as output, tempfile.TemporaryFile() as errors:
            process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=output, stderr=errors, start_new_session=True,
                                       env={**self.environment, **variables})
            where = ""
            try:
                status = f"status {process.wait(seconds)}"
            except subprocess.TimeoutExpired:
                status = f"it has not ended in {seconds:.0f} s"
                where = threads_of(process.pid)
            finally:
                with contextlib.suppress(ProcessLookupError):
                    os.killpg(process.pid, signal.SIGKILL)
                process.wait()
            texts = []
            for file in output, errors:
                file.seek(0)
                texts.append(file.read().decode(errors="replace"))
        if status != "status 0":
            raise Failure(f"{' '.join(command)}: {status}\n{''.join(texts)}{where}")
        return texts[0]

    def bench(self, *arguments, seconds=180):
        """The JSON of rondo bench on one GPU, whose results are checked."""
        text = self.run("rondo", "bench", *arguments, "--device", "cuda:0", "--json", "-", seconds=seconds)
        document = json.loads(text)
        wrong = sum(row["wrong"] for row in document["results"])
        if not document["complete"] or not document["results"] or wrong:
            raise Failure(f"rondo bench {' '.join(map(str, arguments))}: {wrong} wrong elements, "
                          f"{len(document['results'])} rows: {document.get('error', 'complete')}")
        return document


# ---- cases ----

class Outcome:
    """What a case tells. errors: of its tests that have failed."""

    def __init__(self, passed=1, skipped=0, why="", figures=None, errors=None):
        self.passed, self.skipped, self.why, self.figures, self.errors = passed, skipped, why, figures or [], errors or []


def catch_program(name, *arguments, seconds=900, **variables):
    """A test program with Catch2's cases. A case that needs the fake driver says "skipped: why"."""
    def run(machine):
        if machine.each:
            return each_test(machine, name, *arguments, **variables)
        return outcome_of(machine.run(name, *arguments, seconds=seconds, **variables))
    return run


def outcome_of(output):
    """What a test program's output tells."""
    passed, failed = catch_cases(output) or (0, 0)
    skipped = re.findall(r"(?m)^skipped: (.*)$", output)
    if failed or not passed:
        raise Failure(output)
    return Outcome(passed - len(skipped), len(skipped), "; ".join(sorted(set(skipped))))


def names_of(machine, program, *chosen):
    """The tests of a program."""
    # Catch2 2.13 ends with the number of tests that it lists.
    command = [str(machine.path(program)), *chosen, "--list-test-names-only"]
    listed = subprocess.run(command, capture_output=True, text=True, env=machine.environment, timeout=60, check=False).stdout
    names = [line.strip() for line in listed.splitlines() if line.strip()]
    if not names:
        raise Failure(f"{' '.join(command)}: no test")
    return names


def spelled(name):
    """A test's name as an argument of Catch2, where a comma or a bracket would be syntax."""
    return re.sub(r"([,\[\]\\\\])", r"\\\1", name)


def each_test(machine, program, *chosen, **variables):
    """Every test in a process of its own."""
    names = names_of(machine, program, *chosen)

    def one(name):
        if machine.left() < 2:
            return Outcome(0, 1, "no time was left")
        try:
            return outcome_of(machine.run(program, spelled(name), seconds=LONGEST_TEST, **variables))
        except (Failure, OSError) as failure:
            return f"---- {name}\n{failure}"

    with concurrent.futures.ThreadPoolExecutor(machine.each) as workers:
        outcomes = list(workers.map(one, names))
    good = [outcome for outcome in outcomes if isinstance(outcome, Outcome)]
    return Outcome(sum(outcome.passed for outcome in good), sum(outcome.skipped for outcome in good),
                   "; ".join(sorted({outcome.why for outcome in good if outcome.why})),
                   errors=[outcome for outcome in outcomes if not isinstance(outcome, Outcome)])


def skips_what_needs_the_fake(machine):
    """Runs tests over the fake driver as if it were a real one. A test that controls the fake must
    be skipped: it would abort here. There is one GPU, so no test may count on a second. Tests that
    are not skipped run, so --quick draws one in ten."""
    skipped = 0
    # [bits] takes long, and controls nothing.
    for program, *which in ("test_device",), ("test_bn", "[gpu],[places]"), ("test_gpu", "~[bits]"), ("test_grad", "[gpu],[devices]"), ("test_table", "two levels on GPUs*"):
        if machine.quick and not all_cases():
            names = names_of(machine, program, *which)
            which = [",".join(map(spelled, drawn_of(names, -(-len(names) // 10))))]
        output = machine.run(program, *which, RONDO_TEST_REAL_CUDA="1", FAKE_CUDA="leaks=fail,gpus=1", seconds=300)
        skipped += len(re.findall(r"(?m)^skipped: it controls the fake", output))
    if not skipped and (all_cases() or not machine.quick):
        raise Failure("no test was skipped over a driver that is not the fake")
    return Outcome()


def shows_gpus(machine):
    text = machine.run("rondo", "info")
    if not re.search(r"(?m)^gpu 0 +\S", text):
        raise Failure(f"rondo info shows no GPU 0:\n{text}")
    return Outcome()


def collectives(operations, ranks, transport, *more, iterations=3):
    """Ranks as processes that share one GPU. Sizes below and above a segment, and no multiple of
    the number of ranks."""
    def run(machine):
        for operation in operations:
            machine.bench(operation, "--ranks", ranks, "--transport", transport, "-b", 12, "-e", "1200012" if machine.fake else "12000012",
                          "-f", 100, "-n", iterations, "-w", iterations, "--no-ceiling", *more)
        return Outcome()
    return run


def direct_collectives(operations, ranks):
    """Direct algorithms, with so many calls that windows and slots are used."""
    def run(machine):
        for more in (), ("--allocate",):
            collectives(operations, ranks, "shm", "--algorithm", "direct", *more, iterations=15)(machine)
        return Outcome()
    return run


def every_type(machine):
    machine.bench("-d", "all", "-o", "all", "--ranks", 2, "-b", "40004", "-e", "40004", "-n", 2, "-w", 0, "--no-ceiling")
    return Outcome()


def figures_of(operation, ranks, transport, most):
    """Times and bandwidths, for the file of --json."""
    def run(machine):
        document = machine.bench(operation, "--ranks", ranks, "--transport", transport, "-b", "4K", "-e", most, "-f", 16, seconds=300)
        return Outcome(figures=[document])
    return run


def batch_norm(samples, channels, spatial, rounds):
    """Times of a layer's passes, beside copies in the same run."""
    def run(machine):
        return Outcome(figures=[json.loads(machine.run("batch_norm_bench", samples, channels, spatial, rounds, seconds=300))])
    return run


@contextlib.contextmanager
def endless_ranks(machine, ranks, transport, deadline, more):
    """Ranks of a bench that would take hours, in the middle of it. They are killed at the end."""
    with tempfile.TemporaryDirectory(prefix="rondo-gpu-") as folder:
        started = []
        try:
            for rank in range(ranks):
                variables = {"RONDO_RANK": str(rank), "RONDO_SIZE": str(ranks), "RONDO_INTERFACE": "lo",
                             "RONDO_RENDEZVOUS": f"file://{folder}/{RENDEZVOUS}"}
                command = [str(machine.path("rondo")), "bench", "--device", "cuda:0", "--transport", transport, "-b", "4M", "-e", "4M",
                           "-n", "100000000", "-c", "0", "--no-ceiling", "--deadline", str(deadline), *more]
                with open(f"{folder}/{rank}", "wb") as output:
                    started.append(subprocess.Popen(command, stdout=output, stderr=output, env={**machine.environment, **variables}))
            said = [Path(f"{folder}/{rank}") for rank in range(ranks)]
            wait_until(60, lambda: "#wrong" in said[0].read_text(errors="replace") or any(one.poll() is not None for one in started))
            time.sleep(1)  # for some operations
            yield started, said
        finally:
            for process in started:
                with contextlib.suppress(ProcessLookupError):
                    process.send_signal(signal.SIGKILL)
                process.wait()


def wait_until(seconds, condition):
    until = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > until:
            return False
        time.sleep(0.05)
    return True


def lost_rank(transport, name, deadline, *more, ranks=3, victim=1):
    """One rank gets a signal in the middle of operations. The others end with an error that names
    it, and then the GPU works."""
    def run(machine):
        with endless_ranks(machine, ranks, transport, deadline, more) as (started, said):
            early = [rank for rank, process in enumerate(started) if process.poll() is not None]
            if early:
                raise Failure(f"ranks {early} have ended before the signal: {said[early[0]].read_text(errors='replace')}")
            started[victim].send_signal(name)
            others = [rank for rank in range(ranks) if rank != victim]
            wait_until(deadline + 20, lambda: all(started[rank].poll() is not None for rank in others))
            for rank in others:
                text = said[rank].read_text(errors="replace")
                if started[rank].poll() is None:
                    raise Failure(f"rank {rank} has not ended after rank {victim} got {name.name}: {text}")
                if started[rank].returncode != 3 or f"rank {victim}" not in text.split("#wrong")[-1]:
                    raise Failure(f"rank {rank} has ended with status {started[rank].returncode} and does not name rank {victim}: {text}")
        machine.bench("--ranks", 2, "-b", "1M", "-e", "1M", "-n", 2, "--no-ceiling")
        return Outcome()
    return run


def cases(machine):
    """(name, function), in order."""
    if machine.quick:
        yield "device", catch_program("test_device", "device: bytes go to a GPU*,device: a driver that*")
        yield "gpu", catch_program("test_gpu", "a stream that joins*,a buffer that goes*")
        yield "batch norm", catch_program("test_bn", "the results of one process over every transport")
        yield "table", catch_program("test_table", "table: gpu on several hosts", RONDO_TEST_CASES="few")
        yield "skips", skips_what_needs_the_fake
        yield "info", shows_gpus
        yield "collectives: 2 ranks over shm", collectives(COLLECTIVES[:1], 2, "shm")
        yield "collectives: 3 ranks over tcp", collectives(COLLECTIVES[4:5], 3, "tcp")
        yield "collectives: 2 ranks, direct", direct_collectives(COLLECTIVES[:1], 2)
        yield "fault: SIGKILL over tcp", lost_rank("tcp", signal.SIGKILL, 30)
        yield "bench: all_reduce, 2 ranks over shm", figures_of("all_reduce", 2, "shm", "64K")
        yield "bench: batch norm", batch_norm(2, 8, 49, 3)
        return
    yield "device", catch_program("test_device")
    yield "gpu", catch_program("test_gpu", "~[abandons]")
    yield "gpu: two levels", catch_program("test_table", "two levels on GPUs*")
    yield "gpu: a stream that does not move", catch_program("test_gpu", "[abandons]", FAKE_CUDA="leaks=ignore,gpus=2")
    yield "gradients", catch_program("test_grad", "[gpu]~[abandons],[devices]")
    yield "gradients: a stream that does not move", catch_program("test_grad", "[abandons]", FAKE_CUDA="leaks=ignore,gpus=2")
    yield "batch norm", catch_program("test_bn", "[gpu],[places]")
    yield "table", catch_program("test_table", "table: gpu*")
    if machine.fake:
        yield "skips", skips_what_needs_the_fake
    yield "info", shows_gpus
    yield "collectives: 1 rank", collectives(COLLECTIVES, 1, "shm")
    for ranks in 2, 4, 8:
        for transport in "shm", "tcp":
            yield f"collectives: {ranks} ranks over {transport}", collectives(COLLECTIVES, ranks, transport)
        yield f"collectives: {ranks} ranks, direct", direct_collectives(COLLECTIVES, ranks)
    yield "collectives: every type", every_type
    for transport in "shm", "tcp":
        yield f"fault: SIGKILL over {transport}", lost_rank(transport, signal.SIGKILL, 30)
        yield f"fault: SIGSTOP over {transport}", lost_rank(transport, signal.SIGSTOP, 3)
    for more in (), ("--allocate",):
        yield f"fault: SIGKILL, direct{' in windows' if more else ''}", lost_rank("shm", signal.SIGKILL, 30, "--algorithm", "direct", *more)
    for ranks in 2, 4:
        for transport in "shm", "tcp":
            yield f"bench: all_reduce, {ranks} ranks over {transport}", figures_of("all_reduce", ranks, transport,
                                                                                   "1M" if machine.fake else "256M")
    yield "bench: batch norm", batch_norm(4, 16, 49, 3) if machine.fake else batch_norm(64, 256, 3136, 30)


# ---- main ----

def pack(build, folder):
    """Copies the programs, and the libraries that another machine may lack."""
    libraries = folder / "lib"
    libraries.mkdir(parents=True, exist_ok=True)
    for program in PROGRAMS:
        shutil.copy2(build / program, folder)
        listed = subprocess.run(["ldd", str(build / program)], capture_output=True, text=True, check=True).stdout
        for name, path in re.findall(r"(?m)^\s*(\S+) => (/\S+)", listed):
            if not OF_SYSTEM.match(name):
                shutil.copy2(Path(path).resolve(), libraries / name)
    print(f"{folder}: {len(PROGRAMS)} programs and {len(list(libraries.iterdir()))} libraries; run there: "
          f"python3 tests/gpu/gpu.py --binaries {folder}")


def run_case(machine, name, function):
    """The record of a case."""
    begin = time.monotonic()
    record = {"name": name, "passed": 0, "failed": 0, "skipped": 0}
    try:
        outcome = function(machine) if machine.left() > 2 else Outcome(0, 1, "no time was left")
        record.update(passed=outcome.passed, skipped=outcome.skipped, failed=len(outcome.errors))
        if outcome.errors:
            record["error"] = "\n".join(outcome.errors)
        if outcome.why:
            record["why_skipped"] = outcome.why
        if outcome.figures:
            record["figures"] = outcome.figures
    except (Failure, OSError, ValueError) as failure:
        record.update(failed=1, error=str(failure))
    record["seconds"] = round(time.monotonic() - begin, 1)
    return record


def report(record, log):
    result = "failed" if record["failed"] else "skipped" if not record["passed"] else "passed"
    counts = f"{record['passed']} passed" + (f", {record['skipped']} skipped" if record["skipped"] else "")
    print(f"{result:<8} {record['name']:<44} {record['seconds']:>7.1f} s  {counts if record['passed'] or record['skipped'] else ''}",
          flush=True)
    if record["failed"]:
        lines = record["error"].splitlines()
        if log:
            with open(log, "a", encoding="utf-8") as file:
                file.write(f"==== {record['name']}\n{record['error']}\n")
            # The first lines name program and status, or each test.
            lines = [line for line in lines if line.startswith("----")] or lines[:3] + lines[-6:]
        print("\n".join("         " + line[:300] for line in lines[-40:]), flush=True)
    for document in record.get("figures", []):
        for row in document["results"]:
            if "rate" in row:
                print(f"         {row['name']:<32} {row['bytes']:>11} B  p50 {row['p50_us']:>10.1f} us  {row['rate']:>8.3f} GB/s  "
                      f"{row['ceiling_percent']:>5.1f} % of copies on the GPU")
                continue
            place = "in place" if row["in_place"] else "out of place"
            print(f"         {row['bytes']:>11} B {place:<12} p50 {row['p50_us']:>10.1f} us  busbw {row['busbw']:>8.3f} GB/s  "
                  f"{row['ceiling_percent']:>5.1f} % of copies on the GPU")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--build", default="build")
    parser.add_argument("--binaries")
    parser.add_argument("--pack")
    parser.add_argument("--fake", action="store_true")
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--json")
    parser.add_argument("--log")
    parser.add_argument("--seconds", type=float, default=float("inf"))
    parser.add_argument("--each", type=int, default=0)
    parser.add_argument("names", nargs="*")
    arguments = parser.parse_args()
    if arguments.fake and arguments.binaries:
        parser.error("--fake needs the fake driver of a build folder: leave --binaries out")
    if arguments.pack:
        pack(Path(arguments.build).resolve(), Path(arguments.pack).resolve())
        return 0
    machine = Machine(arguments)
    chosen = [(name, function) for name, function in cases(machine) if not arguments.names or any(part in name for part in arguments.names)]
    if not chosen:
        parser.error(f"no case has one of these in its name: {', '.join(arguments.names)}; there are: "
                     + ", ".join(name for name, _ in cases(machine)))
    try:
        info = machine.run("rondo", "info")
    except Failure as failure:
        print(failure)
        return 1
    gpus = re.findall(r"(?m)^(?:gpus|gpu \d+|cuda driver) .*$", info)
    print("\n".join(gpus), flush=True)
    if not re.search(r"(?m)^gpu 0 +\S", info):
        print("skipped: there is no GPU here; --fake runs over the fake driver")
        return SKIPPED
    records = []
    for name, function in chosen:
        records.append(run_case(machine, name, function))
        report(records[-1], arguments.log)
        if arguments.json:
            document = {"date": datetime.datetime.now(datetime.timezone.utc).isoformat(timespec="seconds"), "fake": arguments.fake,
                        "machine": platform.platform(), "gpus": gpus, "cases": records, "complete": len(records) == len(chosen)}
            partial = Path(arguments.json + ".part")
            partial.write_text(json.dumps(document, indent=1) + "\n", encoding="utf-8")
            partial.replace(arguments.json)
    passed, failed, skipped = (sum(record[what] for record in records) for what in ("passed", "failed", "skipped"))
    print(f"{passed} passed, {failed} failed" + (f", {skipped} skipped" if skipped else ""))
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
