#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""torch's flight recorder, its analysis (torchfrtrace) and its debug server, on groups of Rondo."""

import json
import os
import pickle
import re
import runpy
import sys
import tempfile
import threading
import time
import traceback
import unittest
import urllib.request
from datetime import timedelta
from pathlib import Path

import torch
import torch._C._distributed_c10d as c10d
import torch.distributed as dist
from ranks import RankTest, on_ranks
from torch.distributed.flight_recorder.components import builder, config_manager, types

TIMEOUT = 60  # of what must come


def backend(group=None):
    return (group or dist.group.WORLD)._get_backend(torch.device("cpu"))


def meet(test, name="here"):
    """All ranks have ended their calls: a failure of the next one ends those of no other."""
    store = dist.distributed_c10d._get_default_store()
    store.set(f"{name}-{test.rank}", "")
    store.wait([f"{name}-{rank}" for rank in range(test.size)])


def dumped():
    return c10d._dump_fr_trace(backend="rondo", includeStackTraces=False)


def recorded():
    return pickle.loads(dumped())


def torchfrtrace(dumps):
    """The exit status and the output of `python -m torch.distributed.flight_recorder.fr_trace`, in a
    child that has loaded torch before."""
    with tempfile.TemporaryDirectory() as folder, tempfile.TemporaryFile() as output:
        for rank, dump in enumerate(dumps):
            Path(folder, f"trace_{rank}").write_bytes(dump)
        process = os.fork()
        if process == 0:
            status = 1
            try:
                for descriptor in 1, 2:
                    os.dup2(output.fileno(), descriptor)
                sys.argv = ["torchfrtrace", folder]
                runpy.run_module("torch.distributed.flight_recorder.fr_trace", run_name="__main__")
                status = 0
            except BaseException:
                traceback.print_exc()
            sys.stdout.flush()
            sys.stderr.flush()
            os._exit(status)
        status = os.waitstatus_to_exitcode(os.waitpid(process, 0)[1])
        output.seek(0)
        return status, output.read().decode()


def says(*lines, culprit=None):
    """For on_ranks: torchfrtrace says so of the dumps that the ranks return. It takes for culprits all who
    differ from the rank whose file it happens to read first."""

    def check(test, dumps):
        status, text = torchfrtrace(dumps)
        if os.environ.get("RONDO_TEST_VERBOSE"):
            print(text)
        test.assertEqual(status, 0, text)
        for line in lines:
            test.assertRegex(text, line)
        culprits = {int(rank) for rank in re.findall("Culprit rank ([0-9]+)", text)}
        test.assertIn(culprits, [set()] if culprit is None else [{culprit}, set(range(len(dumps))) - {culprit}])

    return check


class Analysis(RankTest):
    """torch writes the dumps: its abort hook does, once for each process."""

    def fails(self, call):
        """Returns the dump that has been written when the error is raised."""
        with self.assertRaises(dist.DistBackendError):
            call()
        return self.dump()

    def dump(self):
        return Path(self.folder, f"trace_{self.rank}").read_bytes()

    def fails_without(self, call, absent):
        """The call waits for ranks that never make it. These end the group when it has failed."""
        dist.all_reduce(torch.ones(4))
        meet(self)
        store = dist.distributed_c10d._get_default_store()
        if self.rank not in absent:
            dist.set_timeout(timedelta(milliseconds=100))
            dump = self.fails(call)
            store.set(f"failed-{self.rank}", "")
            return dump
        store.wait([f"failed-{rank}" for rank in range(self.size) if rank not in absent])
        backend().abort()
        return self.dump()

    @on_ranks(3, check=says("number: 2 has errors", "Culprit .*SIZE_OR_SYNTAX_MISMATCH", culprit=1))
    def test_sizes_that_differ(self):
        dist.all_reduce(torch.ones(4))
        meet(self)
        return self.fails(lambda: dist.all_reduce(torch.ones(5 if self.rank == 1 else 4)))

    @on_ranks(3, check=says("number: 2 has errors", "Culprit .*COLLECTIVE_TYPE_MISMATCH.*'(all_reduce|broadcast)'", culprit=2))
    def test_another_operation(self):
        dist.all_reduce(torch.ones(4))
        meet(self)
        call = dist.all_reduce if self.rank < 2 else lambda tensor: dist.broadcast(tensor, 0)
        return self.fails(lambda: call(torch.ones(4)))

    @on_ranks(3, check=says("Not all ranks joining collective, sequence number: 2", r"missing ranks: \{2\}", "state: scheduled"))
    def test_a_rank_that_never_comes(self):
        return self.fails_without(lambda: dist.all_reduce(torch.ones(4)), {2})

    @on_ranks(3, check=says("recv 0<-1", r"missing ranks: \{1, 2\}"))
    def test_a_receive_without_a_send(self):
        return self.fails_without(lambda: dist.recv(torch.ones(4), 1), {1, 2})


def every_operation(rank, size):
    """Calls each operation of torch.distributed, with one size on all ranks."""
    one, all_of_it = torch.ones(2), torch.ones(2 * size)
    blocks = [torch.ones(2) for _ in range(size)]
    yield lambda: dist.all_reduce(one)
    yield lambda: dist.all_reduce(torch.eye(2).to_sparse())
    yield lambda: dist.reduce(one, 0)
    yield lambda: dist.broadcast(one, 0)
    yield lambda: dist.all_gather(blocks, one)
    yield lambda: dist.all_gather_into_tensor(all_of_it, one)
    yield lambda: dist.gather(one, blocks if rank == 0 else None)
    yield lambda: dist.scatter(one, blocks if rank == 0 else None)
    yield lambda: dist.reduce_scatter(one, blocks)
    yield lambda: dist.reduce_scatter_tensor(one, all_of_it)
    yield lambda: dist.all_to_all(blocks, [torch.ones(2) for _ in range(size)])
    yield lambda: dist.all_to_all_single(all_of_it, torch.ones(2 * size))
    # Each rank keeps more than it gives: the splits differ between ranks.
    splits = [2 + 2 * (peer == rank) for peer in range(size)]
    yield lambda: dist.all_to_all_single(torch.ones(sum(splits)), torch.ones(sum(splits)), splits, splits)
    yield dist.barrier

    def coalesced():
        with dist.distributed_c10d._coalescing_manager(device=torch.device("cpu")):
            for _ in range(2):
                dist.all_reduce(one)

    yield coalesced


def messages(rank, size):
    after, before = (rank + 1) % size, (rank - 1) % size
    for source in [before], []:
        sent = dist.isend(torch.ones(2), after)
        dist.recv(torch.ones(2), *source)
        sent.wait()
    pair = [dist.P2POp(dist.isend, torch.ones(2), after), dist.P2POp(dist.irecv, torch.ones(2), before)]
    for work in dist.batch_isend_irecv(pair):
        work.wait()


class Recording(RankTest):
    @on_ranks(2)
    def test_states(self):
        """The recorder knows which calls have ended, and which hang."""
        for _ in range(3):
            dist.all_reduce(torch.ones(1))
        dist.all_reduce(torch.ones(1), async_op=True).wait()
        dist.barrier()
        hangs = dist.irecv(torch.zeros(1), 1 - self.rank)
        dump = recorded()
        self.assertEqual([entry["state"] for entry in dump["entries"]], ["completed"] * 5 + ["scheduled"])
        self.assertEqual([entry["retired"] for entry in dump["entries"]], [True] * 5 + [False])
        self.assertEqual(dump["pg_status"]["0"]["last_completed_collective"], 4)
        dist.barrier()
        dist.send(torch.ones(1), 1 - self.rank)
        hangs.wait()

    @on_ranks(2)
    def test_what_has_failed_is_not_completed(self):
        dist.all_reduce(torch.ones(4), async_op=True).wait()
        meet(self)
        with self.assertRaises(dist.DistBackendError):
            dist.all_reduce(torch.ones(4 + self.rank), async_op=True).wait()
        with self.assertRaises(dist.DistBackendError):
            dist.barrier()
        states = [(entry["state"], entry["retired"]) for entry in recorded()["entries"]]
        self.assertEqual(states, [("completed", True), ("scheduled", False), ("scheduled", False)])

    @on_ranks(2)
    def test_threads_with_blocking_calls(self):
        """The recorder finds an entry by the key of its Work. Equal calls may come in any order."""
        calls = lambda: [dist.all_reduce(torch.ones(1)) for _ in range(100)]
        threads = [threading.Thread(target=calls) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        self.assertEqual({entry["state"] for entry in recorded()["entries"]}, {"completed"})

    def knows_all(self, dumps):
        status, text = torchfrtrace([collectives for collectives, _ in dumps])
        self.assertEqual(status, 0, text)
        self.assertNotRegex(text, "(?i)mismatch|errors|not all ranks|culprit")
        # torchfrtrace compares messages of three ranks with each other and finds fault, but knows them.
        status, text = torchfrtrace([everything for _, everything in dumps])
        self.assertEqual(status, 0, text)

    @on_ranks(3, check=knows_all)
    def test_every_operation(self):
        for call in every_operation(self.rank, self.size):
            call()
        collectives = dumped()
        messages(self.rank, self.size)
        entries = recorded()["entries"]
        self.assertEqual({entry["state"] for entry in entries}, {"completed"})
        for entry in entries:
            library, name = entry["profiling_name"].split(":")
            self.assertEqual(library, "rondo")
            self.assertIn(name.split()[0], types.COLLECTIVES | types.P2P)
        return collectives, dumped()

    @on_ranks(2)
    def test_record_comm(self):
        """The name of dist.record_comm is in the messages of Rondo."""
        for options in {}, {"async_op": True}:
            group = dist.new_group()
            with dist.record_comm("loss"), self.assertRaisesRegex(dist.DistBackendError, 'all_reduce #1 "loss"'):
                work = dist.all_reduce(torch.ones(4 + self.rank), group=group, **options)
                work.wait()

    @on_ranks(3)
    def test_debug_server(self):
        """What the pages /fr_trace?backend=rondo and /c10d_health_check of torch's debug server show, which
        is what is under way. The pages themselves need packages that are not here."""
        group = dist.new_group([0, 2], group_desc="pair")
        store = dist.distributed_c10d._get_default_store()
        server = c10d._WorkerServer("127.0.0.1", 0)
        store.set(f"server-{self.rank}", str(server.port))

        def ask(rank, page):
            port = store.get(f"server-{rank}").decode()
            with urllib.request.urlopen(f"http://127.0.0.1:{port}/handler/{page}", b"", TIMEOUT) as answer:
                return json.load(answer)

        dist.barrier()
        if self.rank != 1:
            work = dist.all_reduce(torch.ones(4), async_op=True)
            dist.all_reduce(torch.ones(4), group=group)
        if self.rank == 0:
            dumps = {str(rank): {"rank": rank, "host_name": "", "entries": [], **ask(rank, "fr_trace_json?backend=rondo")} for rank in range(3)}
            database = builder.build_db(dumps, config_manager.JobConfig().parse_args([]), dumps["0"]["version"])
            self.assertEqual([(group.desc, group.size) for group in database.groups], [("default_pg", 3), ("pair", 2)])
            seen = [(one.collective_name, one.pg_desc, one.collective_state, one.missing_ranks) for one in database.collectives]
            self.assertEqual(seen, [("rondo:all_reduce", "0:default_pg", "scheduled", {1})])
            store.set("looked", "")
        self.assertEqual(ask(self.rank, "c10d_health_check"), {"healthy": True, "unhealthy_backends": []})
        if self.rank == 1:
            store.wait(["looked"])
            dist.all_reduce(torch.ones(4))
        else:
            work.wait()
        meet(self)
        with self.assertRaises(dist.DistBackendError):
            dist.all_reduce(torch.ones(4 + self.rank))
        self.assertEqual(ask(self.rank, "c10d_health_check"), {"healthy": False, "unhealthy_backends": ["rondo"]})
        server.shutdown()


def poll(work):
    while not work.is_completed():
        pass
    raise work.exception()


def ignore(work, seen):
    """Nobody waits for the work, only for the callback of its future."""
    called = threading.Event()
    work.get_future().add_done_callback(lambda future: (seen.append("error"), called.set()))
    del work
    assert called.wait(TIMEOUT)


def raised(seen, call):
    try:
        call()
    except dist.DistBackendError:
        seen.append("error")


# Ways to see the error of an all_reduce whose sizes differ. call(**options) starts it.
WAYS = {
    "blocking": lambda call, seen: raised(seen, call),
    "wait": lambda call, seen: raised(seen, lambda: call(async_op=True).wait()),
    "future": lambda call, seen: raised(seen, lambda: call(async_op=True).get_future().wait()),
    "poll": lambda call, seen: raised(seen, lambda: poll(call(async_op=True))),
    "nobody": lambda call, seen: ignore(call(async_op=True), seen),
}


class AbortHooks(RankTest):
    @on_ranks(2)
    def test_before_the_error_and_once(self):
        for name, way in WAYS.items():
            with self.subTest(way=name):
                group, seen = dist.new_group(), []
                own = backend(group)
                self.assertTrue(own.supports_abort_hooks)
                for number in range(2):
                    own.register_abort_hook(number, lambda number=number, seen=seen: seen.append(f"hook {number}"))
                own.unregister_abort_hook(0)
                dist.all_reduce(torch.ones(4), group=group)
                meet(self, name)
                self.assertEqual(seen, [])
                tensor = torch.ones(4 + self.rank)
                way(lambda group=group, tensor=tensor, **options: dist.all_reduce(tensor, group=group, **options), seen)
                self.assertEqual(seen, ["hook 1", "error"])
                # The group stays failed. A hook that comes late is called before the next error.
                own.register_abort_hook(2, lambda seen=seen: seen.append("late hook"))
                for _ in range(2):
                    raised(seen, lambda group=group: dist.barrier(group=group))
                self.assertEqual(seen[2:], ["late hook", "error", "error"])

    @on_ranks(2)
    def test_abort_and_the_end(self):
        """abort() calls the hooks, and the end of a group does not."""
        for name in "abort", "shutdown":
            group, seen = dist.new_group(), []
            backend(group).register_abort_hook(1, lambda seen=seen: seen.append("hook"))
            work = dist.irecv(torch.zeros(1), 1 - self.rank, group=group)
            meet(self, name)
            hooks = ["hook"] if name == "abort" else []
            if self.rank == 0:
                getattr(backend(group), name)()
                self.assertEqual(seen, hooks)
            if self.rank == 0 or name == "abort":  # to the other rank the end is a loss
                raised(seen, work.wait)
                self.assertEqual(seen, [*hooks, "error"])

    @on_ranks(2)
    def test_threads(self):
        """Errors wait for hooks on other threads. Hooks may be removed and use the group meanwhile."""
        group, seen, removed, began = dist.new_group(), [], threading.Event(), threading.Event()
        own = backend(group)

        def hook():
            began.set()
            raised([], lambda: dist.barrier(group=group))
            assert removed.wait(TIMEOUT)
            time.sleep(0.05)  # in which no error may be seen
            seen.append("hook")

        def remove():
            assert began.wait(TIMEOUT)
            own.unregister_abort_hook(1)
            removed.set()

        own.register_abort_hook(0, lambda: 1 // 0)  # its error is not that of the group
        own.register_abort_hook(1, hook)
        works = [dist.irecv(torch.zeros(1), 1 - self.rank, group=group) for _ in range(3)]
        threads = [threading.Thread(target=raised, args=(seen, work.wait)) for work in works]
        threads.append(threading.Thread(target=remove))
        for thread in threads:
            thread.start()
        raised(seen, lambda: dist.all_reduce(torch.ones(4 + self.rank), group=group))
        for thread in threads:
            thread.join(TIMEOUT)
        self.assertEqual(seen, ["hook"] + ["error"] * 4)

    @on_ranks(2)
    def test_stacks(self):
        """torch needs Python's lock for the stacks in its dump, which a thread that polls has."""
        os.environ["TORCH_INCLUDE_STACK_TRACE"] = str(self.rank)  # on one rank: it computes for two seconds
        os.environ["TORCH_FR_WAIT_TIMEOUT_DUMP_MILSEC"] = "50000"  # then torch writes without stacks; 15 s on a busy machine
        raised([], lambda: poll(dist.all_reduce(torch.ones(4 + self.rank), async_op=True)))
        entry = pickle.loads(Path(self.folder, f"trace_{self.rank}").read_bytes())["entries"][0]
        names = [frame["name"] for frame in entry.get("frames", [])]
        self.assertEqual("test_stacks" in names, self.rank == 1)


if __name__ == "__main__":
    unittest.main()
