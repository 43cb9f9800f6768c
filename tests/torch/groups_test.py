#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Groups of some of the ranks, and many groups."""

import os
import resource
import signal
import socket
from datetime import timedelta

import torch
import torch.distributed as dist
from devices import DeviceTest, each_device, main, ramp
from ranks import RankTest, in_window, join, on_ranks
from torch.distributed import _Backend

CPU = torch.device("cpu")
ADDRESS, SECRET = "0//cpu//rondo/rendezvous", "0//cpu//rondo-secret"  # in the store of the default group


def sum_of_ranks(group=None):
    tensor = torch.tensor([float(dist.get_rank())])
    dist.all_reduce(tensor, group=group)
    return tensor.item()


class OneAfterTheOther(RankTest):
    """Groups in one store, as in a notebook and after a restart. It has what earlier groups have left."""

    def setUp(self):
        with socket.create_server(("127.0.0.1", 0)) as free:
            self.url = f"tcp://127.0.0.1:{free.getsockname()[1]}"

    def store(self):
        return dist.FileStore(f"{self.folder}/store", self.size)

    def join_and_sum(self, store):
        dist.init_process_group("rondo", store=store, rank=self.rank, world_size=self.size)
        self.assertEqual(sum_of_ranks(), sum(range(self.size)))

    @on_ranks(3, join=False)
    def test_five(self):
        store = self.store()
        for number in range(5):
            with self.subTest(number=number):
                self.join_and_sum(store)
                if number == 4:
                    self.assertFalse(store.check([SECRET]))
                    self.assertFalse(store.check([ADDRESS]))
                dist.destroy_process_group()

    # torch's store ends with rank 0's group, and the next one begins at the same port.
    @on_ranks(3, join=False)
    def test_five_by_variables(self):
        for number in range(5):
            with self.subTest(number=number):
                dist.init_process_group("rondo", init_method=self.url, rank=self.rank, world_size=3)
                self.assertEqual(sum_of_ranks(), 3.0)
                dist.destroy_process_group()

    # Rank 0 of a run that was killed while its ranks joined has left its address and its secret.
    @on_ranks(3, join=False)
    def test_after_a_crash_in_a_join(self):
        store = self.store()
        if self.rank == 0:
            child = os.fork()
            if child == 0:
                self.join_and_sum(self.store())
            store.wait([ADDRESS])
            os.kill(child, signal.SIGKILL)
            os.waitpid(child, 0)
            self.assertTrue(store.check([SECRET]))
            store.set("killed", "")
        store.wait(["killed"])
        self.join_and_sum(store)
        dist.destroy_process_group()


class Groups(RankTest):
    @on_ranks(3)
    def test_some_of_the_ranks(self):
        group = dist.new_group([2, 0])
        if self.rank != 1:
            self.assertEqual(sum_of_ranks(group), 2.0)
            # Roots and peers are global ranks.
            tensor = torch.tensor([float(self.rank)])
            dist.broadcast(tensor, 2, group=group)
            self.assertEqual(tensor.item(), 2.0)
            if self.rank == 2:
                dist.send(torch.ones(1), 0, group=group)
            else:
                self.assertEqual(dist.recv(tensor, group=group), 2)
        self.assertEqual(sum_of_ranks(), 3.0)

    @on_ranks(3)
    def test_groups_that_only_members_make(self):
        if self.rank != 0:
            group = dist.new_group([1, 2], use_local_synchronization=True)
            self.assertEqual(sum_of_ranks(group), 3.0)

    # torch splits only where a device is bound.
    @on_ranks(3, join=False)
    def test_split_of_a_bound_device(self):
        dist.init_process_group(
            "rondo", init_method=f"file://{self.folder}/store", rank=self.rank, world_size=3,
            device_id=torch.device("cpu:0"),
        )  # fmt: skip
        self.assertTrue(dist.group.WORLD._get_backend(CPU).supports_splitting)
        group = dist.split_group(split_ranks=[[0, 2]])
        if self.rank == 1:
            self.assertNotIsInstance(group, dist.ProcessGroup)
        else:
            self.assertEqual(sum_of_ranks(group), 2.0)
        group = dist.new_group([1, 2])
        if self.rank != 0:
            self.assertEqual(sum_of_ranks(group), 3.0)

    @on_ranks(3)
    def test_subgroups_and_meshes(self):
        mine, all_groups = dist.new_subgroups(1)
        self.assertEqual(len(all_groups), 3)
        self.assertEqual(sum_of_ranks(mine), self.rank)
        mine, _ = dist.new_subgroups_by_enumeration([[0, 1], [2]])
        self.assertEqual(sum_of_ranks(mine), [1.0, 1.0, 2.0][self.rank])
        mesh = dist.init_device_mesh("cpu", (1, 3), mesh_dim_names=("a", "b"))
        self.assertEqual(sum_of_ranks(mesh.get_group("b")), 3.0)
        self.assertEqual(sum_of_ranks(mesh.get_group("a")), self.rank)

    @on_ranks(2)
    def test_twenty(self):
        groups = [dist.new_group() for _ in range(20)]
        tensors = [torch.full((2,), float(number)) for number in range(20)]
        works = [
            dist.all_reduce(tensor, group=group, async_op=True)
            for tensor, group in zip(tensors, groups)
        ]
        for work in reversed(works):
            work.wait()
        self.assertEqual([t[0].item() for t in tensors], [2.0 * n for n in range(20)])
        threads = len(os.listdir("/proc/self/task"))
        for group in groups[10:]:
            dist.destroy_process_group(group)
        self.assertLess(len(os.listdir("/proc/self/task")), threads)
        self.assertEqual(sum_of_ranks(groups[3]), 1.0)

    @on_ranks(2, join=False)
    def test_merged(self):
        """Groups of one rank each become one of both."""
        dist.init_process_group("rondo", store=dist.HashStore(), rank=0, world_size=1)
        store = dist.FileStore(f"{self.folder}/merged", 2)
        merged = dist.group.WORLD.merge_remote_group(store, 2, timedelta(seconds=60), "merged")
        tensor = torch.tensor([self.rank + 1.0])
        merged.allreduce([tensor]).wait()
        self.assertEqual([tensor.item(), merged.size()], [3.0, 2])
        merged.shutdown()

    @on_ranks(2, join=False)
    def test_again_and_again(self):
        descriptors = []
        for number in range(4):
            join(self, store=f"store{number}")
            self.assertEqual(sum_of_ranks(), 1.0)
            dist.destroy_process_group()
            descriptors.append(len(os.listdir("/proc/self/fd")))
        self.assertEqual(descriptors[1], descriptors[3])

    @on_ranks(2, join=False)
    def test_beside_gloo(self):
        join(self, "cpu:rondo,cuda:rondo")
        self.assertEqual(dist.group.WORLD._get_backend(CPU).name(), "rondo")
        gloo = dist.new_group(backend="gloo")
        self.assertEqual(sum_of_ranks(), sum_of_ranks(gloo))

    @on_ranks(2, join=False)
    def test_one_rank(self):
        dist.init_process_group("Rondo", store=dist.HashStore(), rank=0, world_size=1)
        self.assertEqual(dist.get_backend(), "rondo")
        self.assertEqual(sum_of_ranks(), 0.0)
        dist.barrier()
        every = [None]
        dist.all_gather_object(every, "me")
        self.assertEqual(every, ["me"])

    @on_ranks(2, join=False)
    def test_options(self):
        join(self, pg_options=_Backend.Options("rondo"))
        self.assertEqual(sum_of_ranks(dist.new_group(pg_options=_Backend.Options("rondo"))), 1.0)
        own = dist.group.WORLD._get_backend(CPU).options
        self.assertEqual(sum_of_ranks(dist.new_group(pg_options=own)), 1.0)
        with self.assertWarnsRegex(UserWarning, "the timeout of pg_options, 0:00:07, does not count"):
            dist.new_group(pg_options=_Backend.Options("rondo", timedelta(seconds=7)))
        override = {"b": ("rondo", _Backend.Options("rondo", timedelta(seconds=50)))}
        mesh = dist.init_device_mesh("cpu", (1, 2), mesh_dim_names=("a", "b"), backend_override=override)
        self.assertEqual(sum_of_ranks(mesh.get_group("b")), 1.0)
        with self.assertRaisesRegex(TypeError, "takes Backend.Options as pg_options and got _Options"):
            dist.new_group(pg_options=dist.ProcessGroupGloo._Options())

    @on_ranks(2)
    def test_ordinary_memory_where_the_backend_has_none(self):
        limits = resource.getrlimit(resource.RLIMIT_NOFILE)
        resource.setrlimit(resource.RLIMIT_NOFILE, (0, limits[1]))
        backend = dist.group.WORLD._get_backend(CPU)
        tensor = backend.allocate_tensor(1000, dtype=torch.float32, device=CPU)
        resource.setrlimit(resource.RLIMIT_NOFILE, limits)
        self.assertFalse(in_window(tensor))
        tensor.fill_(self.rank + 1.0)
        dist.all_reduce(tensor)
        self.assertEqual(tensor.unique().tolist(), [3.0])


@each_device
class Memory(DeviceTest):
    @on_ranks(2)
    def test_memory_from_the_backend(self):
        backend = dist.group.WORLD._get_backend(self.device)
        self.assertTrue(backend.supports_tensor_alloc(self.device))
        tensor = backend.allocate_tensor(1000, dtype=torch.float32, device=self.device)
        self.assertEqual(tensor.device, self.device)
        self.assertTrue(self.on_gpu or in_window(tensor))
        self.assertValues(tensor, torch.zeros(1000))
        tensor.copy_(self.put(ramp(self.rank, 1000)))
        dist.all_reduce(tensor)
        dist.destroy_process_group()
        self.assertValues(tensor, ramp(0, 1000) + ramp(1, 1000))  # it outlives the group

    @on_ranks(2)
    def test_memory_that_grows(self):
        tensor = dist.group.WORLD._get_backend(CPU).allocate_tensor(4, dtype=torch.complex64, device=CPU)
        self.assertEqual([tensor.dtype, tensor.shape, in_window(tensor)], [torch.complex64, (4,), True])
        tensor.fill_(self.rank + 1)
        tensor.resize_(1000)
        self.assertFalse(in_window(tensor))
        self.assertEqual(tensor[:4].tolist(), [self.rank + 1] * 4)
        dist.all_reduce(tensor[:4])
        self.assertEqual(tensor[:4].tolist(), [3] * 4)


if __name__ == "__main__":
    main()
