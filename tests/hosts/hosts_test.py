# SPDX-License-Identifier: Apache-2.0
"""rondo bench and rondo run over several hosts.
Usage: hosts_test.py PATH_OF_RONDO [unittest arguments]"""

import itertools
import json
import os
import pathlib
import select
import subprocess
import sys
import tempfile

from case import HostCase, main, program
from at_once import by_class
from cases import drawn_of
from namespaces import Network
from ranks import PORT, Job, by_host, in_turn

QUICK = ["-n", "3", "-w", "1", "--no-ceiling"]
SIZES = ["-b", "4", "-e", "1M", "-f", "512"]
MIB = 1 << 20


def bench(*arguments) -> list:
    return [program(1), "bench", *arguments]


class Bench(HostCase):
    hosts = 4

    def assert_right(self, job) -> str:
        """Every rank ended with status 0, and every element of every iteration was right."""
        self.assert_ended(job)
        table = job.ranks[0].output
        self.assertIn("# Wrong elements       : 0 OK", table)
        self.assertRegex(table, rf", {len(job.ranks)} ranks[,\n]")
        self.assertEqual([rank.output for rank in job.ranks[1:]], [""] * (len(job.ranks) - 1))
        return table

    def test_placements(self):
        placements = by_host(2, 1), by_host(4, 1), by_host(2, 2), in_turn(2, 2), by_host(4, 2), in_turn(4, 2)
        for placement in drawn_of(placements, 2):
            with self.subTest(placement=placement), Job(self.network, placement, bench(*SIZES, *QUICK)) as job:
                self.assert_right(job)

    def test_every_operation(self):
        operations = {"reduce": [], "broadcast": ["-r", "all"], "all_gather": [], "reduce_scatter": [], "barrier": []}
        places = (by_host(3, 1), []), ([0, 1, 0, 1, 0], ["--algorithm", "two_level"])
        for (operation, more), (placement, algorithm) in drawn_of(itertools.product(operations.items(), places), 2):
            sizes = [] if operation == "barrier" else ["-b", "64K", "-e", "64K"]
            with self.subTest(operation=operation, placement=placement):
                with Job(self.network, placement, bench(operation, *sizes, *more, *algorithm, *QUICK)) as job:
                    self.assert_right(job)

    def test_the_bytes_go_over_the_links(self):
        before = [host.counters() for host in self.network.hosts]
        with Job(self.network, by_host(4, 1), bench("-b", "1M", "-e", "1M", "--algorithm", "ring", *QUICK)) as job:
            self.assert_right(job)
        # One warm-up and three iterations, out of place and in place. In each of these 8 calls each
        # host sends and receives 3/2 MiB.
        payload = 8 * 3 * MIB // 2
        for host, (received, sent) in zip(self.network.hosts, before):
            now_received, now_sent = host.counters()
            for moved in now_received - received, now_sent - sent:
                self.assertGreater(moved, payload)
                self.assertLess(moved, 1.5 * payload)

    def test_ranks_of_a_host_share_its_link_well(self):
        """Whatever the placement, a ring crosses each link once, and with two_level only the sums
        of hosts cross it."""
        # Shares of the buffer that cross a link: 2(n-1)/n with n = 8 ranks, and with n = 2 hosts.
        shares = {"ring": 2 * 7 / 8, "two_level": 2 * 1 / 2}
        for (algorithm, share), placement in drawn_of(itertools.product(shares.items(), (by_host(2, 4), in_turn(2, 4)))):
            with self.subTest(algorithm=algorithm, placement=placement):
                before = self.network.hosts[1].counters()[1]
                with Job(self.network, placement, bench("-b", "4M", "-e", "4M", "--algorithm", algorithm, *QUICK)) as job:
                    self.assert_right(job)
                sent = self.network.hosts[1].counters()[1] - before
                payload = 8 * 4 * MIB * share  # 8 calls, as above
                self.assertGreater(sent, payload)
                self.assertLess(sent, 1.1 * payload)

    def test_the_ceiling_is_that_of_the_links(self):
        with tempfile.TemporaryDirectory() as folder:
            path = pathlib.Path(folder) / "out.json"
            with Job(self.network, by_host(2, 1), bench("-b", "1M", "-e", "1M", "-n", "3", "--json", path)) as job:
                table = self.assert_right(job)
            self.assertRegex(table, r"# Ceiling              : 0\.\d+ to 0\.\d+ GB/s")
            self.assertEqual(json.loads(path.read_text())["ranks"], 2)

    def test_clocks_of_one_host_that_differ(self):
        """Containers may have time namespaces of their own, for example after a restore."""
        shifted = ["unshare", "-T", "--monotonic", "1000000"]
        if self.network.hosts[0].run([*shifted, "true"]).returncode != 0:
            self.skipTest("there can be no time namespaces here")
        script = f'[ "$RONDO_RANK" = 1 ] && exec {" ".join(shifted)} "$@"; exec "$@"'
        with tempfile.TemporaryDirectory() as folder:
            path = pathlib.Path(folder) / "out.json"
            command = ["sh", "-c", script, "sh", *bench("-b", "1K", "-e", "1K", "--json", path, *QUICK)]
            with Job(self.network, by_host(1, 2), command) as job:
                self.assert_right(job)
            for row in json.loads(path.read_text())["results"]:
                self.assertLess(row["late_us"], 60e6)
                self.assertLess(row["transfer_us"], 60e6)
                self.assertGreater(row["clock_error_us"], 0)

    def test_variables_of_torchrun(self):
        def variables(rank: int) -> dict:
            return {"RONDO_RANK": None, "RONDO_SIZE": None, "RONDO_RENDEZVOUS": None, "RANK": str(rank), "WORLD_SIZE": "4",
                    "MASTER_ADDR": self.network.hosts[0].address(), "MASTER_PORT": str(PORT), "LOCAL_RANK": str(rank % 2),
                    "LOCAL_WORLD_SIZE": "2"}

        with Job(self.network, by_host(2, 2), bench(*SIZES, *QUICK), per_rank=variables) as job:
            self.assert_right(job)

    def test_rondo_run_on_one_of_them(self):
        done = self.network.hosts[1].run([program(1), "run", "-n", "2", program(1), "bench", *SIZES, *QUICK], seconds=60)
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertIn("# Wrong elements       : 0 OK", done.stdout)


# A process that makes hosts, starts a process on one of them, and prints the id of that process.
HOLDER = """
import sys, time
sys.path.insert(0, sys.argv[1])
from namespaces import Network
network = Network(2, ["1gbit"])
print(network.hosts[1].start(["sleep", "100"]).pid, flush=True)
time.sleep(100)
"""


class Harness(HostCase):
    def has_carrier(self, host: int) -> bool:
        done = self.network.hosts[host].run(["ip", "-json", "link", "show", "eth0"], check=True)
        return "LOWER_UP" in json.loads(done.stdout)[0]["flags"]

    def test_links_can_be_cut_and_mended(self):
        self.assertEqual([self.has_carrier(0), self.has_carrier(1)], [True, True])
        self.network.cut(1)
        self.assertEqual([self.has_carrier(0), self.has_carrier(1)], [True, False])
        self.network.mend(1)
        self.assertEqual([self.has_carrier(0), self.has_carrier(1)], [True, True])

    def test_two_networks_beside_each_other(self):
        with Network(2, ["1gbit"]) as other:
            self.assertEqual(other.hosts[0].address(), self.network.hosts[0].address())
            other.cut(0)
            self.assertTrue(self.has_carrier(0))

    def test_nothing_is_left_when_the_process_is_killed(self):
        with subprocess.Popen([sys.executable, "-B", "-c", HOLDER, os.path.dirname(__file__)], stdout=subprocess.PIPE, text=True) as holder:
            watched = os.pidfd_open(int(holder.stdout.readline()))
            holder.kill()
        try:
            self.assertEqual(select.select([watched], [], [], 60)[0], [watched], "the process on the host has ended too")
        finally:
            os.close(watched)


class Secrets(HostCase):
    def join(self, secrets: dict) -> list:
        command = bench("-b", "1K", "-e", "1K", *QUICK)
        # In a user namespace an ordinary user is user 0, whose runtime folder may belong to the
        # real root. So the job gets a folder of its own.
        with tempfile.TemporaryDirectory() as own, \
                Job(self.network, by_host(2, 1), command, per_rank=lambda rank: {"RONDO_SECRET": secrets[rank]},
                    XDG_RUNTIME_DIR=own, RONDO_CONNECT_DEADLINE="2") as job:
            job.finish()
            for rank in job.ranks:
                self.assertNotEqual(rank.status, 0, job.story())
                self.assertEqual(rank.output, "")
            return [rank.errors for rank in job.ranks]

    def test_no_host_has_one(self):
        first, second = self.join({0: None, 1: None})
        self.assertIn("missing: rank 1", first)
        # Rank 0 hears of rank 1 at once, not only at the deadline.
        self.assertIn("rank 0 turned away a connection from 10.77.0.2: it is on another host", first)
        self.assertIn("set RONDO_SECRET to the same text on all ranks", second)

    def test_one_host_has_none(self):
        first, second = self.join({0: "a secret of the job", 1: None})
        self.assertIn("missing: rank 1", first)
        self.assertRegex(first, r"rank 0 turned away rank 1 from 10\.77\.0\.2:\d+: a job secret is needed")
        self.assertIn("RONDO_SECRET", second)

    def test_one_host_has_another(self):
        first, second = self.join({0: "a secret of the job", 1: "a secret of another"})
        self.assertIn("missing: rank 1", first)
        self.assertIn("secret", second)


class Firewalls(HostCase):
    def test_data_ports_are_blocked(self):
        self.network.lose(1, "ip dport 42000 0xfff0", "ip sport 42000 0xfff0")
        hints = {"1": r"measuring the link to rank \d at 10\.77\.0\.\d:4200\d: no answer by the deadline of connect\(\)\. A firewall may "
                      r"drop data connections: .*RONDO_PORT_RANGE",
                 "0": r"cannot connect to rank \d at 10\.77\.0\.\d:4200\d: no answer within \d+ ms\. If rank \d runs, a firewall may "
                      r"block port 4200\d: RONDO_PORT_RANGE is 42000-42015 \(docs/several-hosts\.md#firewalls\)"}
        for measure, hint in drawn_of(hints.items()):
            with self.subTest(measure=measure), \
                    Job(self.network, by_host(2, 1), bench("-b", "8", "-e", "8", *QUICK), RONDO_PORT_RANGE="42000-42015",
                        RONDO_CONNECT_DEADLINE="2", RONDO_MEASURE=measure) as job:
                job.finish()
                for rank in job.ranks:
                    self.assertRegex(rank.errors, hint)
                    self.assertNotIn("RONDO_MEASURE", rank.errors)

    def test_link_local_addresses_alone(self):
        with Network(2, ["1gbit"]) as network:
            for host in network.hosts:
                host.set_up("ip", ["address flush dev eth0", "address add fe80::1%d/64 dev eth0 nodad" % host.number])
            with Job(network, by_host(2, 1), bench("-b", "8", "-e", "8", *QUICK), RONDO_RENDEZVOUS=f"tcp://[fe80::10%eth0]:{PORT}") as job:
                job.finish()
                for rank in job.ranks:
                    self.assertRegex(rank.errors, r"rank \d runs on another host and listens only on loopback \(127\.0\.0\.1:\d+\): .*link-local "
                                                  r"addresses \(fe80::\).*Give one an address")


class Interfaces(HostCase):
    rates = ["1gbit", "500mbit"]

    def test_a_dead_path_is_told_once(self):
        for link in drawn_of(range(2)):
            with self.subTest(link=link), Network(2, self.rates) as network:
                network.silence(1, link)
                with Job(network, by_host(2, 2), bench("-b", "64K", "-e", "64K", "--algorithm", "ring", *QUICK), link=1 - link) as job:
                    self.assert_ended(job)
                    told = [line for rank in job.ranks for line in rank.errors.splitlines()]
                    # Ranks 0 and 1 are those on the host with the lower ranks.
                    self.assertLessEqual(len(told), 2, told)
                    self.assertRegex(told[0], rf"^rondo warning: rank [01] on host \S+ cannot reach rank [23] over interface eth{link} "
                                              rf"\(10\.77\.{link}\.1 -> 10\.77\.{link}\.2\), and uses 10\.77\.{1 - link}\.1 -> "
                                              rf"10\.77\.{1 - link}\.2 \(eth{1 - link}\) instead: .*RONDO_INTERFACE=\^eth{link}\b")

    def moved(self, **environment) -> list[int]:
        """Runs a job. Returns the bytes that host 1 received on each link."""
        host = self.network.hosts[1]
        before = [host.counters(link)[0] for link in range(2)]
        with Job(self.network, by_host(2, 1), bench("-b", "1M", "-e", "1M", *QUICK), **environment) as job:
            self.assert_ended(job)
            self.assertEqual([rank.errors for rank in job.ranks], ["", ""])
        return [host.counters(link)[0] - before[link] for link in range(2)]

    def test_a_filter_picks_the_network(self):
        filters = ("eth0", 0), ("eth1", 1), ("10.77.1.0/24", 1), ("^eth0,lo", 1), ("eth*,^eth1", 0)
        for wanted, chosen in drawn_of(filters, 2):
            with self.subTest(filter=wanted):
                moved = self.moved(RONDO_INTERFACE=wanted)
                self.assertGreater(moved[chosen], 8 * MIB)
                self.assertLess(moved[1 - chosen], MIB)

    def test_a_filter_that_matches_nothing(self):
        with Job(self.network, by_host(2, 1), bench("-b", "1K", "-e", "1K", *QUICK),
                 per_rank=lambda rank: {"RONDO_INTERFACE": "eth9"} if rank == 1 else {}) as job:
            job.finish()
            for rank in job.ranks:
                for part in "rank 1 cannot take part", "eth9", "lo (127.0.0.1)", "eth0 (10.77.0.2)", "eth1 (10.77.1.2)":
                    self.assertIn(part, rank.errors)


load_tests = by_class(3)

if __name__ == "__main__":
    main(1)
