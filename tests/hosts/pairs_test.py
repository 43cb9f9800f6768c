# SPDX-License-Identifier: Apache-2.0
"""rondo bench pairs between hosts that differ.
Usage: pairs_test.py PATH_OF_RONDO PATH_OF_DELAY_WIRE [unittest arguments]"""

import json
import os
import pathlib
import re
import tempfile
import time
import unittest
import xml.etree.ElementTree as ElementTree

from case import HostCase, main, program
from cases import draws
from namespaces import Network, Unable
from ranks import Job, by_host

# RONDO_TEST_PAIRS_RUNS=20 repeats the large case.
RUNS = int(os.environ.get("RONDO_TEST_PAIRS_RUNS", "1"))
SECONDS = 30  # eight hosts take less, on two cores with eight ranks
SLOW, FAR, SENDER, RECEIVER = 2, 5, 1, 4


def pairs(*arguments) -> list:
    return [program(1), "bench", "pairs", *arguments]


@draws(1)
class Eight(unittest.TestCase):
    """Links of 1 Gbit/s. Host 2 has 200 Mbit/s, host 5 is 2 ms away from all others, and what host 1
    sends to host 4 has 20 Mbit/s."""

    @classmethod
    def setUpClass(cls) -> None:
        try:
            cls.network = Network(8, ["1gbit"], delays={FAR: 2000}, wire=program(2))
        except Unable as reason:
            raise unittest.SkipTest(str(reason))
        cls.addClassCleanup(cls.network.close)
        cls.network.set_rate(SLOW, "200mbit")
        cls.network.slow_down(SENDER, RECEIVER, "20mbit")

    def test_each_is_named(self):
        for number in range(RUNS):
            with self.subTest(run=number):
                self.check_run()

    def check_run(self) -> None:
        with tempfile.TemporaryDirectory() as folder:
            json_path, csv_path, svg_path = (pathlib.Path(folder) / name for name in ("out.json", "out.csv", "out.svg"))
            begin = time.monotonic()
            with Job(self.network, by_host(8, 1), pairs("--json", json_path, "--csv", csv_path, "--svg", svg_path)) as job:
                for rank in job.finish():
                    self.assertEqual((rank.status, rank.errors), (0, ""), job.story())
                taken = time.monotonic() - begin
                output = job.ranks[0].output
            self.assertLess(taken, SECONDS, output)
            record = json.loads(json_path.read_text())
            self.check_findings(record["findings"], output)
            self.check_record(record, csv_path.read_text().splitlines())
            self.check_picture(ElementTree.parse(svg_path).getroot())

    def check_findings(self, findings: list, output: str) -> None:
        named = {(one["what"], one["kind"], one.get("host", one.get("rank")), one.get("to_rank")): one for one in findings}
        slow = named.pop(("bandwidth", "host", SLOW, None))
        for direction in "from", "to":
            self.assertGreaterEqual(slow[direction]["out"], 6)
            self.assertAlmostEqual(slow[direction]["value"], 0.0245, delta=0.003)
        link = named.pop(("bandwidth", "link", SENDER, RECEIVER))
        self.assertLess(link["from"]["value"], 0.004)
        self.assertGreater(link["to"]["value"], 10 * link["from"]["value"])
        far = named.pop(("latency", "host", FAR, None))
        self.assertEqual(far["from"]["out"], 7)
        self.assertGreater(far["from"]["value"], 2000)
        self.assertLess(far["from"]["value"], 3000)
        # The wire of the far host is a process, so its bandwidth depends on what else runs here. This
        # wire loses what it cannot carry. The slow host loses what others send before they know its rate.
        for quantity, kind, *ends in list(named):
            if (quantity == "bandwidth" and FAR in ends) or (quantity == "resent" and {FAR, SLOW} & set(ends)):
                del named[(quantity, kind, *ends)]
        self.assertEqual(named, {}, output)
        for one in findings:
            self.assertIn(f"#   {one['what']} {one['text']}\n", output)
        self.assertRegex(output, rf"host .* \(rank {SLOW}\): 0\.02\d* GB/s to and from every other host, others 0\.\d+ GB/s")

    def check_record(self, record: dict, table: list[str]) -> None:
        self.assertEqual((record["kind"], record["version"], record["complete"], record["ranks"]), ("pairs", 1, True, 8))
        rows = record["results"]
        first = [row for row in rows if row["measured_again"] == 0]
        self.assertEqual({(row["from_rank"], row["to_rank"]) for row in first}, {(a, b) for a in range(8) for b in range(8) if a != b})
        self.assertEqual(len(first), 56)
        self.assertEqual({row["round"] for row in first}, set(range(1, 8)))
        again = {(row["from_rank"], row["to_rank"]) for row in rows if row["measured_again"] == 2}
        self.assertIn((SLOW, FAR), again)
        self.assertEqual({row["outlier"] for row in first}, {None})
        # A busy machine may make its first latencies long, too; the last row has the best of all.
        after = [row["outlier"] or "" for row in rows
                 if (row["from_rank"], row["to_rank"]) == (SENDER, RECEIVER) and row["measured_again"] >= 2]
        self.assertTrue(after and all("bandwidth" in outlier for outlier in after), after)
        self.assertEqual(after[-1], "bandwidth")
        self.assertIn((RECEIVER, SENDER), again)
        self.assertEqual(table[0].split(","), list(rows[0]))
        self.assertEqual(len(table), 1 + len(rows))
        scale = next(one for one in record["scales"] if one["what"] == "bandwidth")
        self.assertGreater(scale["median"], 0.04)

    def check_picture(self, picture: ElementTree.Element) -> None:
        """Two maps with 56 values each; the outliers have frames."""
        space = "{http://www.w3.org/2000/svg}"
        self.assertEqual(len(picture.findall(f".//{space}title")), 2 * 56)
        frames = [one for one in picture.iter(f"{space}rect") if one.get("class") == "inner"]
        self.assertGreaterEqual(len(frames), 2 * 6 + 1 + 14)

    def check_missed(self, message: str, *flags: str) -> None:
        with Job(self.network, by_host(8, 1), pairs("--pair-time", "20ms", "--quiet", *flags)) as job:
            job.finish()
            self.assertEqual([rank.status for rank in job.ranks], [1] * 8, job.story())
            self.assertRegex(job.ranks[0].errors, message)
            self.assertEqual(job.ranks[0].output, "")

    def test_least_bandwidth(self):
        self.check_missed(rf"\(rank {SENDER}\) -> .* \(rank {RECEIVER}\): 0\.00\d* GB/s, below --min-bandwidth 0\.01\n", "--min-bandwidth", "0.01")

    def test_greatest_latency(self):
        self.check_missed(r"\(rank \d\) - .* \(rank \d\): latency 2\.\d* ms, above --max-latency 1\.9 ms\n", "--max-latency", "1900us")

    def test_greatest_spread(self):
        self.check_missed(r"bandwidth between hosts: the worst is 9\d % below the median 0\.\d* GB/s, more than --max-spread 90: "
                          rf".*\(rank {SENDER}\) -> .*\(rank {RECEIVER}\)\n", "--max-spread", "90")

    def test_no_outliers(self):
        self.check_missed(rf"bandwidth host .* \(rank {SLOW}\): 0\.02\d* GB/s to and from every other host.*\(--fail-outliers\)\n", "--fail-outliers")


@draws(1)
class Four(unittest.TestCase):
    """Four hosts with links of 1 Gbit/s, one of which is bad."""

    def setUp(self):
        self.network = Network(4, ["1gbit"])
        self.addCleanup(self.network.close)

    def run_pairs(self, status: int, **environment: str) -> tuple[dict, str]:
        with tempfile.TemporaryDirectory() as folder:
            path = pathlib.Path(folder) / "out.json"
            with Job(self.network, by_host(4, 1), pairs("--pair-time", "50ms", "--json", path), **environment) as job:
                self.assertEqual([rank.status for rank in job.finish()], [status] * 4, job.story())
                self.assertEqual([rank.errors for rank in job.ranks[1:]], [""] * 3)
                return json.loads(path.read_text()), job.ranks[0].output + job.ranks[0].errors

    def test_a_dead_link_leaves_the_others_their_table(self):
        self.network.lose(1, f"ip dst {self.network.hosts[2].address()}/32")
        record, output = self.run_pairs(1, RONDO_CONNECT_DEADLINE="3")
        self.assertRegex(output, r"(?m)^rondo bench: pairs: link .*\(rank 1\) - .*\(rank 2\): nothing came through: .")
        rows = record["results"]
        self.assertEqual({(row["from_rank"], row["to_rank"]) for row in rows}, {(a, b) for a in range(4) for b in range(4) if a != b})
        for row in rows:
            dead = {row["from_rank"], row["to_rank"]} == {1, 2}
            self.assertEqual((row["bandwidth"] is None, row["outlier"] == "lost"), (dead, dead), row)
        self.assertTrue(record["complete"])
        self.assertIn("# bandwidth (GB/s)", output)

    def test_a_link_that_loses_packets(self):
        # Loses each 64th packet: the one whose identification ends in these bits. The first reply of a
        # connection has 0. GSO would hand over many packets as one.
        self.network.hosts[1].set_up("ip", ["link set eth0 gso_max_segs 1"])
        self.network.lose(1, f"u16 1 0x003f at 4 match ip dst {self.network.hosts[2].address()}/32")
        record, output = self.run_pairs(0)
        lossy = [one for one in record["findings"] if one["what"] == "resent"]
        self.assertEqual([(one["kind"], one["rank"], one["to_rank"]) for one in lossy], [("link", 1, 2)], output)
        self.assertGreater(lossy[0]["from"]["value"], 0.5)
        self.assertRegex(output, r"(?m)^#   resent link .*\(rank 1\) -> .*\(rank 2\): [0-9.]+ % of segments, back 0.* % of segments, others 0 % of segments$")
        self.assertIn("\n# resent (%) of TCP segments", output)
        self.assertTrue(all(row["resent_percent"] >= 0 for row in record["results"]))

    def test_a_slow_host_is_named_and_not_unreachable(self):
        self.network.set_rate(1, "1mbit", shape="burst 32kb latency 400ms")
        begin = time.monotonic()
        record, output = self.run_pairs(0)
        self.assertNotIn("does not answer", output)
        slow = [one for one in record["findings"] if one["what"] == "bandwidth"]
        self.assertEqual([(one["kind"], one["host"]) for one in slow], [("host", 1)], output)
        self.assertAlmostEqual(slow[0]["from"]["value"], 0.000118, delta=0.00004)
        self.assertLess(time.monotonic() - begin, SECONDS)


class Few(HostCase):
    hosts = 3

    def test_two_hosts(self):
        with Job(self.network, by_host(2, 2), pairs("--pair-time", "20ms", "--max-latency", "1s", "--min-bandwidth", "0.001")) as job:
            self.assert_ended(job)
        output = job.ranks[0].output
        self.assertIn("# 1 pairs in 1 rounds", output)
        self.assertIn("# One link between hosts: there is no other to compare it with", output)
        self.assertRegex(output, r"# Outliers +: none")

    def test_ranks_too(self):
        with tempfile.TemporaryDirectory() as folder:
            path = pathlib.Path(folder) / "out.json"
            with Job(self.network, by_host(2, 2), pairs("--ranks-too", "--pair-time", "20ms", "--json", path)) as job:
                self.assert_ended(job)
            rows = json.loads(path.read_text())["results"]
        met = {(row["from_rank"], row["to_rank"]) for row in rows}
        self.assertEqual(met, {(a, b) for a in range(4) for b in range(4) if a != b})
        self.assertIn("bandwidth within hosts", job.ranks[0].output)
        self.assertIn("bandwidth between hosts", job.ranks[0].output)

    def test_what_was_measured_before_a_rank_died_is_kept(self):
        with tempfile.TemporaryDirectory() as folder:
            path = pathlib.Path(folder) / "out.json"
            with Job(self.network, by_host(3, 1), pairs("--pair-time", "1s", "--json", path)) as job:
                job.until(lambda: path.exists() and json.loads(path.read_text())["results"], 60, "the first round is stored")
                job.ranks[2].process.kill()
                for rank in job.finish(but=(2,)):
                    self.assertEqual(rank.status, 3, job.story())
                    self.assertRegex(rank.errors, r"lost rank 2\b")
            record = json.loads(path.read_text())
        self.assertFalse(record["complete"])
        self.assertRegex(record["error"], r"lost rank 2\b")
        self.assertGreaterEqual(len(record["results"]), 2)


class Refused(HostCase):
    def refusal(self, *arguments) -> str:
        done = self.network.hosts[0].run(pairs(*arguments))
        self.assertEqual(done.returncode, 2, done.stderr)
        self.assertEqual(done.stdout, "")
        return done.stderr

    def test_one_host(self):
        self.assertIn("all ranks are on one host, so there is no pair of hosts; start ranks on several hosts "
                      "(docs/several-hosts.md), or give --ranks-too for pairs of ranks", self.refusal())
        self.assertIn("there is one rank", self.refusal("--ranks-too", "--ranks", "1"))

    def test_flags_of_other_operations(self):
        for flags, why in ((["-b", "8"], "one size"), (["-n", "5"], "--pair-time"), (["--device", "cuda"], "host memory only"),
                           (["--op", "max"], "reduces nothing"), (["--max-spread", "100"], "less than 100"),
                           (["--pair-time", "0"], "1ms to 10s"), (["--sizes", "4"], "at least 8 bytes"),
                           (["--svg", "/no/such/folder/x.svg", "--ranks-too"], "--svg /no/such/folder/x.svg"),
                           (["--svg", "x", "--json", "x"], "both name the same output")):
            with self.subTest(flags=flags):
                self.assertIn(why, self.refusal(*flags))

    def test_flags_of_pairs_elsewhere(self):
        for flags in ["--ranks-too"], ["--pair-time", "1s"], ["--svg", "x"], ["--max-spread", "5"], ["--fail-outliers"]:
            done = self.network.hosts[0].run([program(1), "bench", "all_reduce", *flags])
            self.assertEqual(done.returncode, 2)
            self.assertIn(f"{flags[0]}: only for rondo bench pairs", done.stderr)
        done = self.network.hosts[0].run([program(1), "bench", "all_reduce,pairs"])
        self.assertRegex(done.stderr, re.escape("operation pairs: stands alone"))


if __name__ == "__main__":
    main(2)
