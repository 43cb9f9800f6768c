# SPDX-License-Identifier: Apache-2.0
"""rondo trace over dumps that dumps.py makes.
Usage: trace_test.py PATH_OF_RONDO [unittest arguments]"""

import json
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile
import unittest

from dumps import JOB, Rank, call, job, message
from program import main, rondo

ENVIRONMENT = pathlib.Path(__file__).parents[1] / "torch" / "environment.py"
FOUND = subprocess.run([sys.executable, "-B", ENVIRONMENT, "--find"], capture_output=True, text=True)
TORCH = pathlib.Path(FOUND.stdout.strip()) / "bin" / "python3" if FOUND.returncode == 0 else None
READ_BY_TORCH = """
import sys
from torch.distributed.flight_recorder.fr_trace import main
for folder in sys.argv[1:]:
    print("==", folder, flush=True)
    main([folder, "-p", "rank"])
"""


def add(ranks, *arguments, **fields):
    for rank in ranks:
        rank.add("bulk", called=98.0, sent=98.001, **call(*arguments, **dict(dict(state="moving"), **fields)))


def left_out():
    """Rank 2 leaves out all_reduce #41: its broadcast meets it."""
    ranks = job(3)
    add(ranks[:2], tag="layer 0")
    add(ranks, "broadcast", root=0, count=1024, bytes=1024, state="memory")
    add(ranks, "barrier", type=None, count=None, bytes=None, state="memory")
    for rank in ranks[:2]:
        rank.lane_fields["bulk"] = dict(waits_for="2", waited=2.0, call="all_reduce #41 (64 MiB f32 sum)")
        rank.tail.append('peer lane=bulk rank=2 transport=tcp expected="#41 frame 3" seen="#41 frame 2" heard=-2.0')
    return ranks


def one_more():
    ranks = job(3)
    add(ranks[:1], "broadcast", root=1)
    add(ranks)
    add(ranks)
    return ranks


def tags_tell():
    """All buckets have one size. Rank 2 leaves out the bucket of layer 2, so it is one call behind."""
    ranks = [Rank(rank, 3) for rank in range(3)]
    for layer in range(5):
        add([rank for rank in ranks if (rank.rank, layer) != (2, 2)], tag=f"layer {layer}", state="done" if layer < 4 else "moving")
    return ranks


def tags_differ():
    """Rank 2 is behind; a tag of its differs, but not as if it had left out a call."""
    ranks = tags_tell()
    ranks[2].lanes["bulk"][2]["tag"] = "other"
    return ranks


def sizes_differ(**fields):
    ranks = job(4)
    add(ranks[:3])
    add(ranks[3:], **fields)
    return ranks


def behind():
    ranks = job(4)
    add(ranks[:2], last=3, late=0.5)
    return ranks


def died():
    """Rank 2 died; its file is missing."""
    ranks = job(4, why="failure")
    add(ranks, state="failed")
    for rank in ranks:
        rank.verdict(code="peer_lost", seen_by=1, culprits=2, at=-0.25, link="tcp 10.0.0.7:41022", cause='the connection to rank 2 "broke"')
    ranks[0].head += ["heard rank=1 text=\"rank 2 closed the connection\"", "heard rank=3 text=\"in #41\""]
    return [ranks[rank] for rank in (0, 1, 3)]


def waits(name, peer, received=2):
    ranks = job(3)
    for _ in range(3):
        ranks[0].add("messages", called=97.0, ended=97.1, **message("send", 1, 7))
        ranks[1].add("messages", called=97.0, ended=97.1, **message("receive", 0, 7))
    lone = dict(message(name, peer, 7), state="ranks")
    (ranks[1] if name == "receive" else ranks[0]).add("messages", called=97.5, **lone)
    ranks[2].add("messages", called=97.0, ended=97.1, **message("send", 1, 8))
    return ranks


def running():
    """Dumps of a job that runs, 50 ms apart: rank 2's is the first, and rank 0 has waited for it since."""
    ranks = [Rank(rank, 3, now=100.05 + 0.05 * ((rank + 1) % 3)) for rank in range(3)]
    for rank, calls in zip(ranks, (44, 43, 40)):
        for number in range(calls):
            begin = 96 + number / 10
            rank.add("bulk", called=begin, **call(state="moving" if number + 1 == calls else "done"))
    ranks[0].lane_fields["bulk"] = dict(waits_for="1,2", waited=0.05)
    return ranks


def server(ended=None, name="send"):
    """Rank 1 receives from rank 0 for long. Rank 0 has just sent, or is in a batch."""
    ranks = [Rank(0, 2, now=100.1), Rank(1, 2)]
    ranks[0].add("messages", called=100.05, ended=ended, **dict(message(name, 1, 7), state="done" if ended else "moving"))
    ranks[1].add("messages", called=90.0, **dict(message("receive", 0, 7), state="ranks"))
    return ranks


def with_all_to_all():
    ranks = server(name="send")
    ranks[0].lanes["messages"][0]["called"], ranks[0].lanes["messages"][0]["state"] = -9.0, "ranks"
    ranks[1].lanes["messages"] = [dict(message("all_to_all_v", 0, 7), number=1, called=-9.0, state="ranks")]
    return ranks


def cut_messages():
    """The file of rank 0, which sends, ends before its messages."""
    ranks = waits("receive", 0)
    ranks[0].lanes["messages"] = []
    ranks[0].ends = "end lines=1"
    return ranks


def queued():
    """Rank 0 has called three without waiting. All ranks are in the first."""
    ranks = [Rank(rank, 2) for rank in range(2)]
    add(ranks)
    for _ in range(2):
        add(ranks[:1], state="ranks")
    return ranks


def no_clock(boot):
    """Clocks without an identity: rank 1's dump is older than the call of rank 0, or rank 1 is behind."""
    ranks = [Rank(0, 2, clock_id=""), Rank(1, 2, clock_id="", boot=boot, now=97.9 if boot < 0 else 100.0)]
    add(ranks, state="done")
    add(ranks[:1])
    return ranks


def own_tags(**others):
    ranks = [Rank(rank, 2) for rank in range(2)]
    for step in range(3):
        for rank in ranks:
            add([rank], tag=f"rank {rank.rank} step {step}", state="done")
    return ranks


def doubtful():
    """Two clocks that one long call compares; rank 1's dump is older than the call of rank 0."""
    ranks = [Rank(0, 2), Rank(1, 2, clock_id="b", now=95.0, boot=50.0)]
    for rank in ranks:
        rank.add("bulk", called=70.0 + rank.rank, ended=90.0, **call())
    add(ranks[:1])
    return ranks


def tie():
    ranks = job(2)
    add(ranks[:1], "broadcast", root=0)
    for _ in range(2):
        add(ranks)
    return ranks


def ring_waits():
    """Rank 2 comes late. Rank 1 waits for rank 0, which waits for rank 2."""
    ranks = job(3)
    for rank, last in ((0, 2), (1, 0)):
        add([ranks[rank]], last=last, late=0.5 - 0.01 * rank, state="done")
    add(ranks[2:], state="done")
    return ranks


def swapped():
    ranks = [Rank(rank, 3) for rank in range(3)]
    for layer in range(4):
        for rank in ranks:
            other = layer ^ 3 if rank.rank == 1 and layer in (1, 2) else layer
            add([rank], tag=f"layer {other}", state="done")
    return ranks


def skipped_long_ago():
    """Rank 2 left out a call that no ring has any more."""
    ranks = tags_tell()
    for rank in ranks:
        rank.lanes["bulk"] = rank.lanes["bulk"][3:]
    return ranks


def cut_early():
    """The file of rank 2 ends before it says how many calls there were."""
    ranks = behind()[:3]
    ranks[2].lanes, ranks[2].lane_fields = {}, {}
    return ranks


def stands(late):
    ranks = behind()
    for rank in ranks[:2]:
        rank.lane_fields["bulk"] = dict(waits_for="2,3", waited=late)
    return ranks


CASES = {
    "a job that runs": (running, ["No failure, and no calls that differ", "bulk: rank 0: 44 started, 43 finished; in #44"], ["Calls"]),
    "a send that came after the receiver's dump": (lambda: server(100.06), ["No failure, and no calls that differ"], ["Calls"]),
    "a batch may have the send": (lambda: server(name="batch"), ["No failure, and no calls that differ"], ["Calls"]),
    "a send that ended before the receiver's dump": (lambda: server(99.0), ["rank 1 waits in a receive from rank 0 (key 7, 10 s)"], []),
    "a message to another rank": (lambda: server(name="receive"), ["rank 0 waits in no send for it"], ["rank 0 waits in a"]),
    "all_to_all_v is no receive": (with_all_to_all, ["rank 0 waits in a send to rank 1 (key 7, 8.9 s); rank 1 waits in no receive for it"], []),
    "a file that is cut may have had the send": (cut_messages, ["files that are cut: rank 0"], ["rank 1 waits in a receive"]),
    "calls that wait for calls": (queued, ["No failure, and no calls that differ"], ["has not called"]),
    "a GPU waits for itself": (lambda: sizes_differ(state="stream")[3:] + behind()[2:3], ["Where"], ["has not called"]),
    "clocks without an identity": (lambda: no_clock(-5000.0), ["No failure, and no calls that differ"], ["has not called"]),
    "a rank is behind by a clock of its own": (lambda: no_clock(5000.0), ["rank 1 has not called #2 in bulk"], []),
    "tags of each rank's own": (own_tags, ["No failure, and no calls that differ"], ["differ in tag"]),
    "clocks that may be wrong": (doubtful, ["No failure, and no calls that differ", "by calls, to within 19.5 s"], ["has not called"]),
    "one against one": (tie, [
        "rank 1 left out, or rank 0 called one more, #41, broadcast (64 MiB f32, root 0): from #41 on the calls of rank 1 equal those of rank 0"], []),
    "who waits itself is not late": (ring_waits, ["rank 2 was the last in 1 of 41 calls; others waited 500 ms for it in all"], ["rank 0 was the last"]),
    "buckets in another order": (swapped, [
        '#2 in bulk: ranks 0, 2 called all_reduce (64 MiB f32 sum, "layer 1"), rank 1 called all_reduce (64 MiB f32 sum, "layer 2"); '
        "they differ in tag"], ["left out", "called one more"]),
    "a call left out before the rings begin": (skipped_long_ago, [
        "rank 2 has not called #5 in bulk", "rank 2 left out before #4: from #4 on the calls of rank 2 equal those of ranks 0, 1 from #5 on"], []),
    "a file that is cut before its lanes": (cut_early, ["No failure"], ["has not called"]),
    "who holds up the call under way": (lambda: stands(2.0), [
        "waits for ranks 2, 3, 2 s", "rank 2 was the last in 1 of 41 calls; others waited 2 s for it in all"], []),
    "nothing": (lambda: job(3), ["No failure, and no calls that differ", "bulk: ranks 0-2: 40 started, 40 finished"], ["Calls", "Files"]),
    "a rank leaves out a call": (left_out, [
        "#41 in bulk: ranks 0, 1 called all_reduce (64 MiB f32 sum, \"layer 0\"), rank 2 called broadcast (4 KiB f32, root 0)\n",
        "rank 2 left out #41, all_reduce (64 MiB f32 sum, \"layer 0\"): from #41 on the calls of rank 2 equal those of ranks 0, 1 from #42 on (2 compared)",
        "bulk: ranks 0, 1: 43 started, 40 finished; in all_reduce #41 (64 MiB f32 sum), waits for rank 2, 2 s",
        "bulk: ranks 0, 1: next is #41 frame 3 from rank 2; last came #41 frame 2, 2 s before",
        "bulk: rank 2: 42 started, 40 finished; in #41 broadcast"], ["No failure"]),
    "a rank calls one more": (one_more, [
        "rank 0 called one more, #41, broadcast (64 MiB f32, root 1): from #42 on the calls of rank 0 equal those of ranks 1, 2 from #41 on (2 compared)"], []),
    "tags tell which call a rank left out": (tags_tell, [
        "rank 2 has not called #5 in bulk; the last call is #4, all_reduce (64 MiB f32 sum, \"layer 4\"), moving; ranks 0, 1 have, rank 0 2 s before",
        "rank 2 left out #3, all_reduce (64 MiB f32 sum, \"layer 2\"): from #3 on"], []),
    "tags tell nothing": (tags_differ, ["rank 2 has not called #5 in bulk"], ["left out", "called one more"]),
    "other sizes": (lambda: sizes_differ(count=1024, bytes=4096, algorithm="star", plan="ffff"), [
        "#41 in bulk: ranks 0-2 called all_reduce (64 MiB f32 sum, count 16777216), rank 3 called all_reduce (4 KiB f32 sum, count 1024); "
        "they differ in count"], ["left out"]),
    "other operation on data": (lambda: sizes_differ(op="max"), ["rank 3 called all_reduce (64 MiB f32 max); they differ in op"], []),
    "other plan": (lambda: sizes_differ(plan="ffff"), ["rank 3 called all_reduce (64 MiB f32 sum, plan ffff); they differ in plan"], []),
    "memory of a GPU": (lambda: sizes_differ(device=1), ["rank 3 called all_reduce (64 MiB f32 sum, device 1); they differ in device"], []),
    "a plan that is not known yet": (lambda: sizes_differ(plan=None), ["No failure, and no calls that differ"], []),
    "ranks are behind": (behind, [
        "ranks 2, 3 have not called #41 in bulk; the last call is #40, all_reduce (64 MiB f32 sum, \"layer 3\"), done; "
        "ranks 0, 1 have, rank 0 2 s before: all_reduce",
        "rank 3 was the last in 1 of 41 calls; others waited 500 ms for it in all"], []),
    "a rank died": (died, [
        "dumps: failure of ranks 0, 1, 3; written at 2026-11-30T22:36:40.000000Z",
        "peer_lost, caused by rank 2, seen by rank 1 on tcp 10.0.0.7:41022 at 2026-11-30T22:36:39.750000Z: the connection to rank 2 \"broke\"\n",
        "rank 1, as rank 0 heard: rank 2 closed the connection", "rank 3, as rank 0 heard: in #41",
        "no file of rank 2; look on node1 (rank 2)"], ["Calls that differ"]),
    "a receive without a send": (lambda: waits("receive", 0), [
        "messages: rank 1 waits in a receive from rank 0 (key 7, 2.5 s); rank 0 waits in no send for it"], ["key 8"]),
    "a send without a receive": (lambda: waits("send", 1), [
        "messages: rank 0 waits in a send to rank 1 (key 7, 2.5 s); rank 1 waits in no receive for it"], ["key 8"]),
    "a receive from any rank": (lambda: waits("receive", -1), [
        "rank 1 waits in a receive from any rank (key 7, 2.5 s); no rank waits in a send for it"], []),
    "a receive from a rank without a file": (lambda: waits("receive", 0)[1:], [
        "no file of rank 0; look on node0 (rank 0)", "waits in a receive from rank 0 (key 7, 2.5 s); there is no file of rank 0"], []),
}


class Trace(unittest.TestCase):
    def setUp(self):
        self.folder = pathlib.Path(tempfile.mkdtemp(prefix="rondo-trace-"))
        self.addCleanup(shutil.rmtree, self.folder)

    def trace(self, *arguments, status=0, **changes):
        result = rondo("trace", *arguments, **changes)
        self.assertEqual(result.returncode, status, result.stdout + result.stderr)
        return result

    def of(self, ranks, *arguments, name="a"):
        for rank in ranks:
            rank.write(self.folder / name)
        return self.trace(self.folder / name, *arguments).stdout

    def test_what_it_says(self):
        for number, (name, (make, said, unsaid)) in enumerate(CASES.items()):
            with self.subTest(name):
                text = self.of(make(), name=str(number))
                for part in said:
                    self.assertIn(part, text)
                for part in unsaid:
                    self.assertNotIn(part, text)

    def test_64_ranks_are_a_page(self):
        ranks = job(64, calls=20)
        add(ranks[:40])
        for rank in ranks[:40]:
            rank.lane_fields["bulk"] = dict(waits_for=f"{(rank.rank + 1) % 64}", waited=rank.rank / 10.0, call="all_reduce #21")
            rank.tail.append(f'peer lane=bulk rank={(rank.rank + 1) % 64} transport=tcp expected="#21 frame {rank.rank}" seen="#20" heard=-1.0')
        for rank in ranks[40:60]:
            add([rank], count=rank.rank, bytes=4 * rank.rank)
        ranks[0].head += [f'heard rank={rank} text="in #{rank}"' for rank in range(1, 64)]
        ranks[0].verdict(code="deadline_exceeded", cause="slow", culprits="63")
        text = self.of([rank for rank in ranks if rank.rank % 7])
        self.assertLess(len(text.splitlines()), 60, text)
        self.assertLess(max(map(len, text.splitlines())), 1000)
        self.assertIn("ranks 1-6, 8-13, 15-20, 22-27, 29-34, 36-39 called all_reduce", text)

    def test_the_newest_job_and_the_default_folder(self):
        dumps = self.folder / "dumps"
        for number, name in enumerate(("old", "new")):
            for rank in job(1):
                path = rank.write(dumps)
            path.parent.rename(dumps / name)
            os.utime(dumps / name, (number, number))
        (dumps / "new" / path.name).write_text(job(1, job="c" * 16)[0].text())
        os.utime(dumps / "new", (9, 9))
        self.assertIn("job cccccccccccccccc", self.trace(dumps).stdout)
        self.assertIn("job cccccccccccccccc", self.trace(RONDO_DUMP=str(dumps)).stdout)
        self.assertIn(f"job {JOB}", self.trace(dumps / "old").stdout)
        self.assertIn(f"written at this time too: {dumps / 'old'}\n", self.trace(dumps).stdout)
        os.utime(dumps / "new", (99, 99))
        self.assertNotIn("written at this time too", self.trace(dumps).stdout)
        place = self.folder / f"rondo-{os.geteuid()}" / "dumps"
        place.parent.mkdir()
        dumps.rename(place)
        self.assertIn("job cccccccccccccccc", self.trace(TMPDIR=str(self.folder)).stdout)

    def test_one_file_of_a_rank(self):
        for why, now in (("failure", 90.0), ("slow", 95.0), ("call", 99.0)):
            job(2, why=why, now=now)[0].write(self.folder)
            if why != "failure":
                job(2, why=why, now=now)[1].write(self.folder)
        self.assertIn("dumps: call of rank 1, failure of rank 0;", self.trace(self.folder).stdout)

    def test_files_that_are_not_whole(self):
        ranks = left_out()
        paths = [rank.write(self.folder) for rank in ranks]
        whole = paths[0].read_text()
        paths[0].write_text(whole[:whole.index("op lane=bulk number=1 ") + 30])
        paths[1].write_text(whole.replace("rank=0", "rank=1", 1).replace("number=3 ", "number=x ").replace("number=5 ", "number=-5 ") + "more\n")
        text = self.trace(self.folder).stdout
        self.assertIn("files that are cut: ranks 0, 1; the lines that are there are used", text)
        self.assertRegex(text, r"invalid lines of rank 1 that were left out: \d")
        self.assertIn("rank 2 left out #41", text)
        paths[1].write_text("rondo dump 2\n")
        text = self.trace(self.folder).stdout
        self.assertIn("left out: " + str(paths[1]) + ": not a dump of Rondo", text)
        self.assertIn("no file of rank 1; look on node0 (rank 1)", text)

    def test_bad_input(self):
        first = job(2)[0].write(self.folder)
        other = job(2, job="c" * 16)[1].write(self.folder / "other")
        large = self.folder / "large.dump"
        large.write_bytes(first.read_bytes() + b"x" * (16 << 20))
        empty = self.folder / "empty"
        empty.mkdir()
        headless = self.folder / "headless.dump"
        headless.write_text("rondo dump 1\nend lines=0\n")
        for arguments, said in {(first, other): f"files of two jobs: {other} is of job cccccccccccccccc (2 ranks), and {first} of {JOB} (2 ranks)",
                                (large,): "larger than 16 MiB", (empty,): "has no dumps; a rank writes one when",
                                (headless,): "has no valid line `written`", (first, "--json", "-", "--perfetto", "-"): "name one file", (self.folder / "none",): "cannot be read: no such file",
                                (__file__,): "not a dump of Rondo", ("/dev/zero",): "not a file"}.items():
            with self.subTest(said):
                result = self.trace(*arguments, status=2)
                self.assertIn(said, result.stderr)
                self.assertEqual(result.stdout, "")

    def test_texts_of_a_dump_reach_no_terminal(self):
        ranks = died()
        ranks[0].verdict(code="peer_lost", culprits=2, cause="\x1b[31mred\x85")
        self.assertNotIn("\x1b", self.of(ranks))

    def test_json(self):
        document = json.loads(self.of(died(), "--json", "-"))
        self.assertEqual((document["job"], document["size"], [file["rank"] for file in document["files"]]), (JOB, 4, [0, 1, 3]))
        self.assertEqual((document["verdict"][0]["kind"], document["verdict"][0]["ranks"]), ("verdict", [2]))
        document = json.loads(self.of(left_out(), "--json", "-", name="b"))
        self.assertEqual([(each["kind"], each["ranks"], each["lane"], each["number"]) for each in document["calls"]],
                         [("difference", [2], "bulk", 41), ("left_out", [2], "bulk", 41)])

    def events(self, ranks):
        return json.loads(self.of(ranks, "--perfetto", "-"))["traceEvents"]

    def test_two_clocks(self):
        """Ranks 2 and 3 have another clock, and come 5 ms later: the offset is right within its bound."""
        ranks = [Rank(rank, 4, **(dict(boot=5000.0, clock_id="b", now=100.5, time="2026-11-30T22:30:00.000000Z") if rank > 1 else {}))
                 for rank in range(4)]
        for number in range(10):
            for rank in ranks:
                begin = 90 + number + (0.005 if rank.rank > 1 else 0)
                rank.add("bulk", called=begin, ended=begin + 0.02, **call())
        events = self.events(ranks)
        begins = {(event["pid"] - 1, event["args"]["number"]): event["ts"] for event in events if event["ph"] == "X"}
        clock, = json.loads(self.trace(self.folder / "a", "--json", "-").stdout)["clocks"]
        self.assertEqual((clock["kind"], clock["ranks"]), ("clock", [2, 3]))
        self.assertIn("to within 20 ms", clock["text"])
        for number in range(1, 11):
            self.assertAlmostEqual(begins[1, number], begins[0, number], delta=1)
            self.assertAlmostEqual(begins[2, number] - begins[0, number], 5000, delta=20000)
            self.assertAlmostEqual(begins[2, number], begins[3, number], delta=1)
        # A broadcast may end before others call it.
        for rank in ranks:
            rank.lanes["bulk"] = [dict(each, name="broadcast") for each in rank.lanes["bulk"]]
        self.assertIn("the clock of ranks 2, 3 is compared with that of rank 0 by the wall clocks", self.of(ranks))

    def test_clocks_that_contradict(self):
        ranks = [Rank(rank, 2, clock_id=str(rank)) for rank in range(2)]
        for rank, begin in zip(ranks, ((90, 95), (95, 90))):
            for called in begin:
                rank.add("bulk", called=float(called), ended=called + 0.1, **call())
        self.assertIn("by calls, to within 100 ms", self.of(ranks))  # by those that ended last
        for rank in ranks:  # in these a rank may end before others have called
            rank.lanes["bulk"] = [dict(each, **changes) for each, changes in zip(rank.lanes["bulk"], (dict(name="all_gather_v"), dict(count=0)))]
        self.assertIn("because no collective bounds the difference", self.of(ranks))

    def test_an_older_job_in_the_folder(self):
        old = Rank(0, 2, job="c" * 16, now=10.0)
        old.write(self.folder).rename(self.folder / "a.dump")
        for rank in job(2):
            rank.write(self.folder)
        (self.folder / "a.dump").rename(self.folder / JOB / "a.dump")
        text = self.trace(self.folder / JOB).stdout
        self.assertIn("dumps: signal of ranks 0, 1", text)
        self.assertIn(f"left out: {self.folder / JOB / 'a.dump'} is of job cccccccccccccccc (2 ranks)", text)

    def test_every_rank_that_is_behind(self):
        ranks = [Rank(rank, 32) for rank in range(32)]
        for rank in ranks:
            for number in range(rank.rank + 1):
                add([rank], state="done")
        add(ranks[31:], state="ranks")
        for rank in ranks[:8]:
            rank.lanes["bulk"], rank.lane_fields["bulk"] = [], dict(started=rank.rank)
        document = json.loads(self.of(ranks, "--json", "-"))
        self.assertEqual({rank for finding in document["calls"] for rank in finding["ranks"]}, set(range(31)))

    def test_a_file_made_to_take_long(self):
        ranks = job(2)
        ranks[0].lane_fields["bulk"] = dict(waits_for=",".join(str(rank) for rank in range(400_000)))
        ranks[0].tail += [f"peer lane=bulk rank={rank} expected=a" for rank in range(40_000)]
        for rank in ranks:
            rank.tail += [f"op lane=messages number={number} state=ranks name=receive key={number} peer={1 - rank.rank} called=-9" for number in range(1, 20_000)]
        self.assertIn("others wait so: ", self.of(ranks))

    def test_perfetto(self):
        ranks = left_out()
        ranks[0].add("bulk", **dict(call(), called=None, ended=99.0))
        events = self.events(ranks)
        processes = [event["args"]["name"] for event in events if event["name"] == "process_name"]
        self.assertEqual(processes, ["rank 0 node0", "rank 1 node0", "rank 2 node1"])
        tracks = [event["args"]["name"] for event in events if event["name"] == "thread_name" and event["pid"] == 1]
        self.assertEqual(tracks, ["bulk", "bulk 2", "bulk 3", "bulk 4"])  # calls that overlap
        self.assertEqual([event["args"]["number"] for event in events if event["ph"] == "i"], [44])
        whole = [event for event in events if event["ph"] == "X"]
        self.assertEqual(len(whole), 3 * 43 - 1)
        first = whole[0]
        self.assertEqual((first["name"], first["ts"], first["dur"], first["args"]["bytes"]), ("all_reduce layer 0", 0, 20000, 1 << 26))
        for one, two in zip(whole, whole[1:]):
            if (one["pid"], one["tid"]) == (two["pid"], two["tid"]):
                self.assertGreaterEqual(two["ts"], one["ts"] + one["dur"])

    @unittest.skipIf(TORCH is None, "there is no PyTorch (./dev setup --torch)")
    def test_torch_reads_it(self):
        def every():
            ranks = job(3)
            for name in ("reduce", "broadcast", "all_gather", "reduce_scatter", "barrier", "gather", "scatter", "all_to_all", "all_gather_v",
                         "reduce_scatter_v"):
                add(ranks, name, state="done")
            for sender, receiver in ((0, 2), (2, 1)):
                ranks[sender].add("messages", called=99.0, **message("send", receiver, 7))
                ranks[receiver].add("messages", called=99.0, **message("receive", sender, 7))
            ranks[0].lanes["bulk"] = ranks[0].lanes["bulk"][5:]  # the ring has no more
            return ranks
        made = {"every": every, "left out": left_out, "sizes": lambda: sizes_differ(count=1024, bytes=4096), "behind": behind,
                "message": lambda: waits("receive", 0)}
        for name, make in made.items():
            (self.folder / name / "out").mkdir(parents=True)
            self.of(make(), "--torch", self.folder / name / "out" / "rank", name=name)
        read = subprocess.run([TORCH, "-B", "-c", READ_BY_TORCH, *(self.folder / name / "out" for name in made)],
                              text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, timeout=120)
        self.assertEqual(read.returncode, 0, read.stdout)
        said = re.split(r"^== .*$", re.sub(r"(?m)^.*(unrecognized comm library|tabulate).*\n", "", read.stdout), flags=re.MULTILINE)[1:]
        self.assertEqual(said[0].strip(), "")
        for text, parts in zip(said[1:], (["number: 41", "Culprit rank 2; Error type: COLLECTIVE_TYPE_MISMATCH"],
                                          ["number: 41", "Culprit rank 3; Error type: SIZE_OR_SYNTAX_MISMATCH"],
                                          ["Not all ranks joining collective, sequence number: 41", "missing ranks: {2, 3}"],
                                          ["group info: 0->1 key 7:rondo", "missing ranks: {0}"])):
            for part in parts:
                self.assertIn(part, text)

    def test_torch_leaves_out(self):
        ranks = waits("receive", -1)
        ranks[0].add("messages", **message("all_to_all_v", 0, 0))
        ranks[0].add("bulk", **call("novel"))
        for rank in ranks:
            rank.write(self.folder)
        result = self.trace(self.folder, "--torch", self.folder / "t")
        self.assertIn("--torch leaves out what torchfrtrace cannot pair: novel, send, all_to_all_v, receive", result.stderr)


if __name__ == "__main__":
    main()
