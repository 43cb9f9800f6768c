# SPDX-License-Identifier: Apache-2.0
"""examples/launchers/run-on.sh over network namespaces: `ip netns exec` stands for ssh.
Usage: run_on_test.py PATH_OF_RONDO [unittest arguments]"""

import signal

from case import GOOD, LONG, MEASURING, QUICK, VICTIM, LauncherCase, bench, main, one_end
from cases import drawn_of
from stage import EXAMPLES, on


class Ends:
    """The begin and the end of programs that are not ranks of Rondo. loop(program, variables) starts one
    on each of three hosts."""

    def test_variables_of_rondo_are_passed_on(self):
        """Programs get the RONDO_* of the script's environment, except those that it sets itself."""
        words = 'echo "$RONDO_RANK of $RONDO_SIZE: $RONDO_ALGORITHM"; test "$RONDO_SECRET" != "mine" -a -z "$RONDO_SECRET_FILE"'
        with self.loop("sh", "-c", words, RONDO_ALGORITHM="it's\n\"ring\" $HOME", RONDO_RANK="7", RONDO_SECRET="mine",
                       RONDO_SECRET_FILE="/no/such/file") as run:
            self.assertEqual(run.finish(), [0], run.output)
            for rank in range(3):
                self.assertIn(f"{rank} of 3: it's\n\"ring\" $HOME\n", run.output)

    def test_its_end_ends_silent_programs(self):
        """A program that ignores SIGTERM ends too, and so does what a program has started."""
        for number, program in drawn_of([(signal.SIGINT, "sleep 1000; true"), (signal.SIGTERM, "trap '' TERM; sleep 1000; sleep 1000"),
                                         (signal.SIGHUP, "exec sleep 1000"), (signal.SIGKILL, "sleep 1000 & wait")]):
            with self.subTest(number=number), self.loop("sh", "-c", f"echo started; {program}") as run:
                run.until(lambda run=run: run.output.count("started") == 3, 60, "all have started")
                run.signal(number)
                self.assertEqual(run.finish(), [-number if number == signal.SIGKILL else 128 + number], run.output)

    def test_a_program_that_is_stopped_goes_on(self):
        continues = "(until grep -q '^State:.*stopped' /proc/$$/status; do sleep 0.01; done; kill -CONT $$) & kill -STOP $$; wait; exit 7"
        with self.loop("sh", "-c", continues) as run:
            self.assertEqual(run.finish(), [7], run.output)

    def test_the_second_signal_does_not_wait(self):
        with self.loop("sh", "-c", "trap 'echo asked' TERM; echo started; while :; do sleep 1000; done") as run:
            for said in "started", "asked":
                run.until(lambda said=said: run.output.count(said) == 3, 60, said)
                run.signal(signal.SIGINT)
            self.assertEqual(run.finish(), [128 + signal.SIGINT], run.output)
            self.assertNotIn("status 137", run.output)


class Loop(LauncherCase):
    def loop(self, *program: str, hosts: str = "node0,node1,node2", **variables: str):
        return self.stage.run([EXAMPLES / "run-on.sh", hosts, *program], REACH="ip netns exec", **variables)

    def launch(self, size, threshold):
        return self.loop(*bench(size, threshold), hosts="node0,node1,node2,node3")


@one_end
class RunOn(Loop):
    def test_passed(self):
        self.check_passed()

    def test_missed(self):
        self.assertEqual(self.check_missed()[0], [1])

    def test_killed(self):
        # The status is that of the rank that was killed.
        self.assertEqual(self.check_killed(says=f"run-on.sh: rank {VICTIM} on node{VICTIM} ended with status 137"), [137])

    def test_terminated(self):
        """SIGTERM to the script ends every rank."""
        with self.launch(LONG, GOOD) as run:
            run.until_said(MEASURING)
            run.signal(signal.SIGTERM)
            self.assertEqual(run.finish(), [128 + signal.SIGTERM])


class Silent(Ends, Loop):
    pass


class Names(Loop):
    def test_two_ranks_on_the_first_host(self):
        """The second rank finds rank 0 at the loopback address that the name of its host has there."""
        self.check_run(self.loop(*QUICK, hosts="node0,node0,node1"), 3)

    def test_localhost_on_the_first_host(self):
        """Rank 0 calls its own host localhost, and the other hosts call it by its name."""
        run = self.stage.run()
        for rank, address in enumerate(("localhost", "node0")):
            run.start(on(f"node{rank}", QUICK), RANK=str(rank), WORLD_SIZE="2", MASTER_ADDR=address, MASTER_PORT="29500",
                      RONDO_SECRET="a secret that every rank has")
        self.check_run(run, 2)

    def test_an_address_that_is_listed_twice(self):
        """Rank 0 must not try to listen twice at one address."""
        with open("/etc/hosts") as names, open("/etc/netns/node0/hosts", "a") as table:
            table.write(2 * next(line for line in names if line.endswith(" node0\n")))
        self.check_passed()


if __name__ == "__main__":
    main()
