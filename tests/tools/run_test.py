# SPDX-License-Identifier: Apache-2.0
"""rondo run: ranks, signals, statuses. Usage: run_test.py PATH_OF_RONDO [unittest arguments]"""

import os
import pathlib
import re
import select
import signal
import subprocess
import sys
import tempfile
import textwrap
import time
import unittest

from program import QUICK, RONDO, clean_environment, main, rondo


# Prints that its traps are set, and waits until a signal comes.
STAY = 'echo ready; sleep 1000 & wait; wait'


class Run(unittest.TestCase):
    def shell(self, script, *flags, ranks=3, **changes):
        return rondo("run", "-n", ranks, *flags, "--", "sh", "-c", script, **changes)

    def test_environment(self):
        with tempfile.TemporaryDirectory() as folder:
            result = self.shell('d=$(dirname "${RONDO_RENDEZVOUS#file://}"); echo "$RONDO_RANK $RONDO_SIZE $RONDO_LOCAL_RANK $RONDO_LOCAL_SIZE '
                                '$RONDO_RENDEZVOUS ${#RONDO_SECRET} $(stat -c %a "$d")"', TMPDIR=folder)
            self.assertEqual(result.returncode, 0, result.stderr)
            lines = sorted(result.stdout.split("\n")[:-1])
            self.assertEqual(len(lines), 3)
            for rank, line in enumerate(lines):
                self.assertRegex(line, rf"^{rank} 3 {rank} 3 file://{folder}/rondo-run-\w{{6}}/rendezvous 64 700$")
            self.assertEqual(os.listdir(folder), [], "the private directory is gone")

    def test_binding(self):
        mine = os.sched_getaffinity(0)

        def masks(ranks, *flags):
            script = "import os; print(*sorted(os.sched_getaffinity(0)))"
            result = rondo("run", "-n", ranks, "--label", *flags, "--", sys.executable, "-c", script)
            self.assertEqual(result.returncode, 0, result.stderr)
            lines = sorted([int(word.strip("[]")) for word in line.split()] for line in result.stdout.splitlines())
            self.assertEqual([line[0] for line in lines], list(range(ranks)))
            return [set(line[1:]) for line in lines]

        self.assertEqual(masks(2, "--bind", "none"), [mine, mine])
        for mask in masks(3, "--bind", "numa") + masks(len(mine) + 1):
            self.assertTrue(mask and mask <= mine)
        (alone,) = masks(1)
        (named,) = masks(1, "--bind=core")
        self.assertEqual(alone, named)
        siblings = pathlib.Path(f"/sys/devices/system/cpu/cpu{min(mine)}/topology/thread_siblings_list")
        if siblings.exists():
            parts = [part.split("-") for part in siblings.read_text().strip().split(",")]
            core = {processor for part in parts for processor in range(int(part[0]), int(part[-1]) + 1)}
            self.assertEqual(alone, core & mine)
        if len(mine) > len(alone):
            first, second = masks(2)
            self.assertEqual(first & second, set())

    def test_ranks_listen_on_loopback_only(self):
        # Rank 1 lists the listening sockets of rank 0 before it joins itself.
        other = textwrap.dedent("""
            import os, pathlib, sys, time
            if os.environ["RONDO_RANK"] == "1":
                place = pathlib.Path(os.environ["RONDO_RENDEZVOUS"].removeprefix("file://"))
                until = time.monotonic() + 60
                while not place.exists() and time.monotonic() < until:
                    time.sleep(0.01)
                process = place.read_text().split("process=")[1].split(".")[0]
                mine = set()
                for one in pathlib.Path(f"/proc/{process}/fd").iterdir():
                    try:
                        mine.add(os.readlink(one))
                    except FileNotFoundError:  # closed since
                        pass
                for table in "tcp", "tcp6":
                    for line in pathlib.Path(f"/proc/net/{table}").read_text().splitlines()[1:]:
                        words = line.split()
                        if words[3] == "0A" and f"socket:[{words[9]}]" in mine:
                            print("listens at", words[1].split(":")[0], flush=True)
            os.execv(sys.argv[1], sys.argv[1:])
        """)
        result = rondo("run", "-n", 2, "--", sys.executable, "-c", other, RONDO, "bench", "all_reduce", "-b", "4K", "-e", "4K", *QUICK,
                       RONDO_TRANSPORT="tcp")
        self.assertEqual(result.returncode, 0, result.stderr)
        found = set(re.findall(r"^listens at (\w+)$", result.stdout, re.MULTILINE))
        self.assertTrue(found)
        self.assertLessEqual(found, {"0100007F", "00000000000000000000000001000000"})

    def test_interfaces_that_the_user_names_stay(self):
        for given, wanted in ({}, "lo"), ({"RONDO_INTERFACE": "eth*"}, "eth*"):
            result = self.shell("echo $RONDO_INTERFACE", ranks=1, **given)
            self.assertEqual(result.stdout, wanted + "\n", result.stderr)

    def test_arguments_reach_the_program(self):
        for separator in [], ["--"]:
            result = rondo("run", "-n", 1, *separator, "sh", "-c", 'echo "$@"', "x", "--", "-n", "5", "--label")
            self.assertEqual((result.returncode, result.stdout), (0, "-- -n 5 --label\n"), result.stderr)

    def test_labels(self):
        result = self.shell("echo out; printf err >&2", "--label")
        self.assertEqual(sorted(result.stdout.splitlines()), ["[0] out", "[1] out", "[2] out"])
        self.assertEqual(sorted(result.stderr.splitlines()), ["[0] err", "[1] err", "[2] err"])

    def first_failure(self, script):
        """Starts three ranks, and closes their input when the first failure has been reported.

        Returns the status, and the message of the first failure."""
        with subprocess.Popen([RONDO, "run", "-n", "3", "--", "sh", "-c", script], stdin=subprocess.PIPE, stderr=subprocess.PIPE,
                              text=True, env=clean_environment()) as process:
            message = process.stderr.readline()
            process.stdin.close()
            self.assertEqual(process.stderr.read(), "")
            return process.wait(timeout=60), message

    def test_status_of_the_first_that_fails(self):
        status, message = self.first_failure("[ $RONDO_RANK = 1 ] && exit 7; read line; exit 9")
        self.assertEqual(status, 7)
        self.assertRegex(message, r"^rondo run: rank 1 \(pid \d+\) exited with status 7\n$")

    def test_killed_rank(self):
        status, message = self.first_failure("[ $RONDO_RANK = 2 ] && kill -9 $$; read line; exit 0")
        self.assertEqual(status, 128 + 9)
        self.assertRegex(message, r"^rondo run: rank 2 \(pid \d+\) was killed by signal 9 \(SIGKILL\)\n$")

    def test_grace(self):
        begin = time.monotonic()
        result = self.shell("[ $RONDO_RANK = 1 ] && exit 7; exec sleep 100", "--grace", 1)
        self.assertEqual(result.returncode, 7)
        self.assertIn("ranks 0, 2 still running, sending SIGTERM", result.stderr)
        self.assertLess(time.monotonic() - begin, 30)

    def test_sigkill_where_sigterm_is_ignored(self):
        with tempfile.TemporaryDirectory() as folder:
            os.mkfifo(f"{folder}/ready")
            result = self.shell('if [ $RONDO_RANK = 1 ]; then read line <"$FIFO"; exit 7; fi; trap "" TERM; echo ready >"$FIFO"; '
                                'exec sleep 1000', "--grace", 1, ranks=2, FIFO=f"{folder}/ready")
        self.assertEqual(result.returncode, 7)
        self.assertIn("rank 0 still running, sending SIGKILL", result.stderr)

    def test_signals_go_on(self):
        process = subprocess.Popen([RONDO, "run", "-n", "2", "--", "sh", "-c", f'trap "echo asked" USR2; trap "exit 3" TERM; {STAY}'],
                                   stdout=subprocess.PIPE, text=True, env=clean_environment())
        self.until_ready(process, 2)
        process.send_signal(signal.SIGUSR2)
        self.assertEqual([process.stdout.readline() for _ in range(2)], ["asked\n"] * 2)
        process.send_signal(signal.SIGTERM)
        process.stdout.close()
        self.assertEqual(process.wait(timeout=60), 3)

    def until_ready(self, process, ranks):
        for _ in range(ranks):
            self.assertEqual(process.stdout.readline(), "ready\n")

    def test_ignored_sigchld(self):
        result = subprocess.run([RONDO, "run", "-n", "2", "--", "sh", "-c", "exit 5"], capture_output=True, text=True,
                                timeout=60, env=clean_environment(),
                                preexec_fn=lambda: signal.signal(signal.SIGCHLD, signal.SIG_IGN))
        self.assertEqual(result.returncode, 5, result.stderr)

    def test_ignored_signals_stay_ignored(self):
        with subprocess.Popen([RONDO, "run", "-n", "2", "--grace", "0", "--", "sh", "-c", "echo ready; read line; exit 0"],
                              stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
                              env=clean_environment(),
                              preexec_fn=lambda: signal.signal(signal.SIGHUP, signal.SIG_IGN)) as process:
            self.until_ready(process, 2)
            status = pathlib.Path(f"/proc/{process.pid}/status").read_text()
            blocked, ignored = (int(re.search(rf"{name}:\s*(\w+)", status)[1], 16) for name in ("SigBlk", "SigIgn"))
            self.assertEqual((blocked & 1, ignored & 1), (0, 1))
            process.send_signal(signal.SIGHUP)
            process.stdin.close()
            self.assertEqual(process.wait(timeout=30), 0, process.stderr.read())

    def until_taken(self, process):
        """Waits until rondo run has taken the signal from its queue."""
        status = pathlib.Path(f"/proc/{process.pid}/status")
        while not re.search(r"ShdPnd:\s*0+\n", status.read_text()):
            os.sched_yield()

    def test_the_same_signal_at_once_again(self):
        """Two signals within a second count once. The test repeats where a busy machine takes
        longer."""
        for _ in range(20):
            # The ranks end when their input ends, which is after the second signal.
            with subprocess.Popen([RONDO, "run", "-n", "2", "--", "sh", "-c", f'trap "read line; exit 3" TERM; {STAY}'],
                                  stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=clean_environment()) as process:
                self.until_ready(process, 2)
                begin = time.monotonic()
                for _ in range(2):  # the kernel merges two pending signals into one
                    process.send_signal(signal.SIGTERM)
                    self.until_taken(process)
                took = time.monotonic() - begin
                process.stdin.close()
                status = process.wait(timeout=60)
            if took < 0.9:
                break
        self.assertEqual(status, 3)

    def until_it_ends(self, process, again):
        """Sends a signal until the process ends. The same signal within a second counts once."""
        deadline = time.monotonic() + 60
        while time.monotonic() < deadline:
            process.send_signal(again)
            try:
                return process.wait(timeout=0.2)
            except subprocess.TimeoutExpired:
                continue
        self.fail("the signal has no effect")

    def test_a_second_signal_kills(self):
        for first in signal.SIGTERM, signal.SIGINT:
            with subprocess.Popen([RONDO, "run", "-n", "2", "--", "sh", "-c", f'trap "" TERM INT; {STAY}'], stdout=subprocess.PIPE,
                                  stderr=subprocess.PIPE, text=True, env=clean_environment()) as process:
                self.until_ready(process, 2)
                process.send_signal(first)
                self.until_taken(process)
                self.assertEqual(self.until_it_ends(process, signal.SIGTERM), 128 + 9)
                self.assertIn("ranks 0, 1 still running, sending SIGKILL", process.stderr.read())

    def test_labels_of_more_ranks_than_open_files(self):
        result = subprocess.run(["sh", "-c", 'ulimit -S -n 40; exec "$0" run -n 30 -l -- sh -c "ulimit -S -n"', RONDO],
                                capture_output=True, text=True, timeout=60, env=clean_environment())
        self.assertEqual((result.returncode, result.stderr), (0, ""))
        self.assertEqual(sorted(result.stdout.splitlines()), sorted(f"[{rank}] 40" for rank in range(30)))

    def gone(self, pids):
        """Whether all processes end within a minute each."""
        for pid in pids:
            try:
                handle = os.pidfd_open(pid)
            except ProcessLookupError:
                continue
            ended = select.select([handle], [], [], 60)[0]
            os.close(handle)
            if not ended:
                return False
        return True

    def test_no_orphans(self):
        with tempfile.TemporaryDirectory() as folder:
            process = subprocess.Popen([RONDO, "run", "-n", "2", "--", "sh", "-c", "echo $$; exec sleep 100"],
                                       stdout=subprocess.PIPE, text=True, env=clean_environment(TMPDIR=folder))
            pids = [int(process.stdout.readline()) for _ in range(2)]
            process.kill()
            process.wait()
            process.stdout.close()
            self.assertTrue(self.gone(pids))

    def test_no_strays(self):
        result = self.shell("sleep 100 >/dev/null 2>&1 & echo $!", ranks=2)
        self.assertEqual(result.returncode, 0)
        self.assertTrue(self.gone([int(pid) for pid in result.stdout.split()]))

    def test_programs_that_do_not_start(self):
        # With a folder in PATH that this user may not enter, execvpe would say "permission denied".
        result = rondo("run", "-n", 3, "no-such-program", PATH="/usr/bin:/bin")
        self.assertEqual(result.returncode, 127)
        self.assertEqual(result.stderr, "rondo run: cannot start 'no-such-program': No such file or directory\n")
        result = rondo("run", "-n", 3, "/etc/passwd")
        self.assertEqual(result.returncode, 126)
        self.assertIn("Permission denied", result.stderr)

    def test_bad_input(self):
        cases = {("-n", "0", "true"): "1 to 1024", ("-n", "10000", "true"): "1 to 1024", ("-n", "x", "true"): "--ranks x",
                 ("true",): "--ranks", ("-n", "2"): "no program", ("--bogus", "-n", "2", "true"): "--bogus",
                 ("-n", "2", "--grace", "-1", "true"): "--grace -1", ("-n", "2", "--bind", "socket", "true"): "--bind socket"}
        for arguments, part in cases.items():
            with self.subTest(arguments=arguments):
                result = rondo("run", *arguments)
                self.assertEqual((result.returncode, result.stdout), (2, ""))
                self.assertIn(part, result.stderr)


if __name__ == "__main__":
    main()
