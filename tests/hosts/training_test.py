# SPDX-License-Identifier: Apache-2.0
"""Gradient buckets between hosts, with urgent operations among them.
Usage: training_test.py PATH_OF_TRAINING_RANK [unittest arguments]"""

import re

from case import HostCase, main, program
from namespaces import Unable
from ranks import Job, by_host, in_turn


class Training(HostCase):
    hosts = 4

    def assert_right(self, placement: list[int], **environment) -> None:
        with Job(self.network, placement, [program(1)], **environment) as job:
            self.assert_ended(job)
            self.assertEqual([rank.output for rank in job.ranks], ["right\n"] * len(placement), job.story())

    def test_sums_are_right(self):
        for placement in by_host(4, 1), in_turn(2, 2):
            with self.subTest(placement=placement):
                self.assert_right(placement)

    def test_sums_are_right_on_several_connections(self):
        self.assert_right(by_host(3, 1), RONDO_CONNECTIONS="3")

    def test_urgent_connections_are_marked(self):
        """Switches can recognize urgent packets by their DSCP."""
        host = self.network.hosts[0]
        shape = "rate 1gbit burst 256kb cburst 256kb"
        host.set_up("tc", ["qdisc del dev eth0 root"])
        try:
            host.set_up("tc", ["qdisc add dev eth0 root handle 1: htb default 2", f"class add dev eth0 parent 1: classid 1:1 htb {shape}",
                               f"class add dev eth0 parent 1: classid 1:2 htb {shape}",
                               "filter add dev eth0 parent 1: protocol ip u32 match ip dsfield 0x48 0xfc flowid 1:1"])
        except Unable as reason:
            self.skipTest(str(reason))
        self.assert_right(by_host(2, 1))
        urgent, others = (self.sent(host, f"1:{number}") for number in (1, 2))
        operations = 4 * 12 * 4096  # steps, layers, bytes
        self.assertGreater(urgent, operations)
        self.assertLess(urgent, 2 * operations)
        self.assertGreater(others, 4 * 6 << 20)

    @staticmethod
    def sent(host, name: str) -> int:
        done = host.run(["tc", "-s", "class", "show", "dev", "eth0", "classid", name], check=True)
        return int(re.search(r"Sent (\d+) bytes", done.stdout)[1])


if __name__ == "__main__":
    main(1)
