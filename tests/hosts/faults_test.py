# SPDX-License-Identifier: Apache-2.0
"""Faults between hosts, in the middle of an all_reduce.
Usage: faults_test.py PATH_OF_FAULT_RANK [unittest arguments]"""

import contextlib
import signal
import time
import unittest

from case import SECONDS, HostCase, main, program
from at_once import by_class
from cases import all_cases, drawn_of
from namespaces import Network
from ranks import Job, by_host, in_turn

MIB = 1 << 20
FOREVER = 1_000_000
# Ranks give up a vanished host after 20 s (docs/reference/errors.md): TCP_USER_TIMEOUT, and keepalive where
# nothing is in flight. All other waits are for a busy machine.
PEER_TIMEOUT = 20
BUSY = 60


class FaultCase(HostCase):
    hosts = 4

    @contextlib.contextmanager
    def under_way(self, network: Network, placement: list[int], size: int = 64 * MIB, operations: int = FOREVER, **environment):
        """A job in the middle of an operation, in which every host sends 3/2 of `size`."""
        host = network.hosts[1]
        with Job(network, placement, [program(1), "run", operations, 0, size // 4], **environment) as job:
            job.until_said("ready")
            before = host.counters()[1]
            job.until(lambda: host.counters()[1] - before > size // 3, BUSY, "the operation is under way")
            yield job

    def endings(self, job: Job, lost: tuple[int, ...]) -> dict[int, str]:
        """The error of every rank that is not lost. Each must name the operation in full."""
        job.finish(SECONDS, but=lost)
        endings = {}
        for number, rank in enumerate(job.ranks):
            if number in lost:
                continue
            last = rank.output.splitlines()[-1]
            self.assertRegex(last, r"^error \w+ all_reduce #\d+ \(\d+ MiB f32 sum, \S+ over \S+\): ", job.story())
            endings[number] = last
        return endings


class Killed(FaultCase):
    def test_a_rank_is_killed(self):
        for placement, victim in drawn_of(((by_host(4, 1), 2), (in_turn(2, 2), 3), (by_host(4, 1), 0))):
            with self.subTest(victim=victim), self.under_way(self.network, placement) as job:
                job.ranks[victim].process.kill()
                killed = time.monotonic()
                for ending in self.endings(job, (victim,)).values():
                    self.assertRegex(ending, rf"^error peer_lost .*: (rank \d )?lost rank {victim}\b")
                self.assertLess(time.monotonic() - killed, BUSY)


class Vanished(FaultCase):
    """Faults that the ranks notice only after a wait, so the subclasses run at the same time."""

    def assert_gone(self, job: Job, victim: int, stopped: bool = False) -> None:
        """All ranks that are not stopped end. The others name the victim, and the victim names the
        ranks that it does not hear any more."""
        endings = self.endings(job, (victim,) if stopped else ())
        own = endings.pop(victim, None)
        if own and victim == 0:
            self.assertRegex(own, r"ranks 1-3 do not answer|rank 0 lost rank \d at")
        elif own:
            self.assertRegex(own, rf"rank 0 does not answer|rank {victim} lost rank \d at")
        for ending in endings.values():
            self.assertRegex(ending, rf"rank {victim} does not answer \(stopped, unreachable, or behind a full link\)|"
                                     rf"(rank \d )?lost rank {victim} at 10\.77\.0\.{victim + 1}:")


class Deadline(Vanished):
    def test_the_deadline_passes(self):
        cases = drawn_of([("cut", 2), ("stop", 2), ("silence", 3), ("cut", 0), ("take_down", 1), ("stop", 0)], 2)
        with contextlib.ExitStack() as stack:
            jobs = []
            for way, victim in cases:  # at the same time, because each waits for its deadline
                network = stack.enter_context(Network(4, ["1gbit"]))
                jobs.append(stack.enter_context(self.under_way(network, by_host(4, 1), 16 * MIB, RONDO_DEADLINE="5")))
                if way == "stop":
                    jobs[-1].ranks[victim].process.send_signal(signal.SIGSTOP)
                else:
                    getattr(network, way)(victim)
            for (way, victim), job in zip(cases, jobs):
                with self.subTest(way=way, victim=victim):
                    self.assert_gone(job, victim, way == "stop")


class OwnInterface(Vanished):
    def test_own_interface_is_down(self):
        """The ranks of the host notice at once, or after the second in which a carrier may come
        back."""
        for way, link, cause in drawn_of((("cut", 1, r"down \(no carrier\)"), ("take_down", 1, "down"), ("take_down", 0, "down"))):
            with self.subTest(way=way, link=link), contextlib.ExitStack() as stack:
                network = stack.enter_context(Network(2, ["1gbit", "500mbit"]))
                job = stack.enter_context(self.under_way(network, by_host(2, 1), RONDO_ALGORITHM="ring", RONDO_SEGMENT_BYTES="4M"))
                getattr(network, way)(1, link)
                lost = time.monotonic()
                named = rf": rank 1 lost rank 0 at .*: path \d of 2, 10\.77\.{link}\.2 -> 10\.77\.{link}\.1 \(eth{link}\): interface eth{link} is {cause}(;|$)"
                # Where the control connection used the interface, the other rank sees a lost peer.
                told = range(2) if link == 1 else (1,)
                endings = self.endings(job, ())
                for number in told:
                    self.assertRegex(endings[number], named)
                self.assertRegex(endings[0], r"rank \d lost rank \d at ")
                self.assertLess(time.monotonic() - lost, PEER_TIMEOUT / 2)

    def test_the_only_interface_is_down(self):
        with contextlib.ExitStack() as stack:
            network = stack.enter_context(Network(3, ["1gbit"]))
            job = stack.enter_context(self.under_way(network, by_host(3, 1)))
            network.cut(2)
            lost = time.monotonic()
            self.assertRegex(self.endings(job, (0, 1))[2],
                             r": rank 2 lost rank \d at .*: 10\.77\.0\.3 -> 10\.77\.0\.\d \(eth0\): interface eth0 is down \(no carrier\)(;|$)")
            self.assertLess(time.monotonic() - lost, PEER_TIMEOUT / 2)


class ComesBack(FaultCase):
    def test_a_link_that_comes_back_in_time_costs_time_alone(self):
        """A rank waits a second for the carrier of its own interface. Here it is stopped until that
        second is over, like a rank on a busy host, and then learns that the carrier is back."""
        with self.under_way(self.network, by_host(4, 1), operations=1, RONDO_DEADLINE="60") as job:
            second = time.monotonic() + 1
            self.network.cut(3)
            before = self.network.hosts[3].counters()
            time.sleep(0.25)
            self.assertLess(self.network.hosts[3].counters()[0] - before[0], 1 << 20)
            job.ranks[3].process.send_signal(signal.SIGSTOP)
            if time.monotonic() > second:
                self.skipTest("this machine took a second to cut a link")
            self.network.mend(3)
            time.sleep(max(0, second + 0.5 - time.monotonic()))
            job.ranks[3].process.send_signal(signal.SIGCONT)
            for rank in job.finish(SECONDS):
                self.assertEqual((rank.status, rank.output.splitlines()[-1]), (0, "ok"), job.story())


@unittest.skipUnless(all_cases(), f"it takes the {PEER_TIMEOUT} s after which a host is given up: RONDO_TEST_CASES=all")
class NoDeadline(Vanished):
    def one_of_two_links_is_cut(self, stack: contextlib.ExitStack, link: int) -> Job:
        network = stack.enter_context(Network(2, ["1gbit", "500mbit"]))
        # Large frames have many pieces, so that both links are busy.
        job = stack.enter_context(self.under_way(network, by_host(2, 1), RONDO_ALGORITHM="ring", RONDO_SEGMENT_BYTES="4M"))
        sent = [network.hosts[1].counters(number)[1] for number in range(2)]
        self.assertGreater(min(sent), MIB, sent)
        network.cut(1, link)
        return job

    def test_there_is_no_deadline_to_speak_of(self):
        ways = {"cut": 2, "silence": 0}
        with contextlib.ExitStack() as stack:
            jobs = {}
            for way, victim in ways.items():  # at the same time, because each takes the timeout
                network = stack.enter_context(Network(4, ["1gbit"]))
                jobs[way] = stack.enter_context(self.under_way(network, by_host(4, 1)))
                getattr(network, way)(victim)
            halved = [self.one_of_two_links_is_cut(stack, link) for link in range(2)]
            cut = time.monotonic()
            for way, victim in ways.items():
                with self.subTest(way=way, victim=victim):
                    self.assert_gone(jobs[way], victim)
            for link, job in enumerate(halved):
                with self.subTest(link=link):
                    # The path in the error is that of the connection that the peer closed first.
                    for ending in self.endings(job, ()).values():
                        self.assertRegex(ending, r"rank \d lost rank \d at .*: path \d of 2, .* \(eth\d\): ")
            self.assertLess(time.monotonic() - cut, PEER_TIMEOUT + BUSY)


@unittest.skipUnless(all_cases(), "it takes seconds until large segments count as lost: RONDO_TEST_CASES=all")
class BlackHole(FaultCase):
    def test_a_path_that_drops_large_packets(self):
        """The hosts have jumbo frames, and the network between them does not."""
        with Network(2, ["1gbit"]) as network:
            for host in network.hosts:  # without GSO, whose packets any veth takes
                host.set_up("ip", ["link set eth0 mtu 9000 gso_max_segs 1"])
            hole = r"10\.77\.0\.\d -> 10\.77\.0\.\d \(eth0\): large segments \(8\d\d\d bytes\) have been lost for \d+ s, while small ones arrive.*tcp_mtu_probing"
            for measure in "10":
                with self.subTest(measure=measure), \
                        Job(network, by_host(2, 1), [program(1), "run", 1, 0, MIB], RONDO_MEASURE=measure, RONDO_ALGORITHM="star") as job:
                    for rank in job.finish(SECONDS):
                        self.assertRegex(rank.output + rank.errors, hole, job.story())


load_tests = by_class(4)

if __name__ == "__main__":
    main(1)
