# SPDX-License-Identifier: Apache-2.0
"""The code in docs/frameworks.md, on two ranks, in the environment of ./dev setup --frameworks."""

import importlib.util
import os
import pathlib
import re
import subprocess
import sys
import tempfile
import unittest

SOURCE = pathlib.Path(__file__).resolve().parent.parent.parent
PAGE = (SOURCE / "docs" / "frameworks.md").read_text()
LIMIT = 300  # seconds for one program, on a busy machine

# The names that the snippets take for granted. The loader has one order of the samples 0, 1, 2, ...
BEFORE = """
import os, sys
import torch
from torch import nn
import torch.distributed as dist
from torch.utils.data import DataLoader, TensorDataset
from rondo.torch import ShardedSampler, SyncBatchNorm, convert_sync_batchnorm

torch.manual_seed(0)
rows = torch.arange(20.0)
dataset = TensorDataset(rows[:, None] * torch.ones(4) / 20, torch.zeros(20, 2))
net = nn.Sequential(nn.Linear(4, 8), nn.BatchNorm1d(8), nn.ReLU(), nn.Linear(8, 2))
model = net
optimizer = torch.optim.SGD(model.parameters(), 0.01)
loader = DataLoader(dataset, batch_size=2)
seen = []

def see(module, arguments):
    if module.training:
        seen.extend((arguments[0][:, 0] * 20).round().int().tolist())

net.register_forward_pre_hook(see)

def check(samples=None):
    '''In the last epoch each rank has seen other samples, together all, and they have one state.'''
    assert dist.get_backend() == "rondo", dist.get_backend()
    every = [None] * dist.get_world_size()
    assert len(every) == 2
    dist.all_gather_object(every, seen)
    assert sorted(every[0][-10:] + every[1][-10:]) == list(range(20)), every
    if samples is not None:
        assert every[dist.get_rank()] == samples, (samples, every)
    state = torch.cat([value.detach().float().flatten() for value in net.state_dict().values()])
    states = [torch.empty_like(state) for _ in range(2)]
    dist.all_gather(states, state)
    assert torch.equal(states[0], states[1])
    assert type(net[1]) is SyncBatchNorm, type(net[1])
    print(f"checked {dist.get_rank()}", flush=True)
"""


def snippet(title):
    """The code under a heading of the page."""
    [section] = re.findall(rf"(?ms)^## {re.escape(title)}\n(.*?)(?=^## |\Z)", PAGE)
    [code] = re.findall(r"(?ms)^```python\n(.*?)^```", section)
    return code


def needs(*modules):
    missing = [name for name in modules if importlib.util.find_spec(name) is None]
    return unittest.skipIf(missing, f"not installed: {', '.join(missing)}; ./dev setup --frameworks")


class Frameworks(unittest.TestCase):
    def run_program(self, code, *, launcher=True, ranks=2, **environment):
        """Runs a program with or without torchrun, and returns its output."""
        with tempfile.TemporaryDirectory() as folder:
            program = pathlib.Path(folder, "program.py")
            program.write_text(code)
            command = [sys.executable, "-B", *(["-m", "torch.distributed.run", "--standalone", "--nproc-per-node=2"] if launcher else []), program]
            variables = os.environ | {"OMP_NUM_THREADS": "1", "CUDA_VISIBLE_DEVICES": "", "HF_HUB_OFFLINE": "1"} | environment
            with subprocess.Popen(command, cwd=folder, env=variables, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True) as process:
                try:
                    output, _ = process.communicate(timeout=LIMIT)
                except subprocess.TimeoutExpired:
                    process.terminate()  # torchrun and the like then end their ranks
                    output, _ = process.communicate()
        self.assertEqual(process.returncode, 0, output)
        self.assertEqual(len(set(re.findall("checked [0-9]", output))), ranks, output)
        return output

    @needs("lightning")
    def test_lightning_trainer(self):
        module = """
import lightning.pytorch

class Module(lightning.pytorch.LightningModule):
    def __init__(self):
        super().__init__()
        self.net = net

    def training_step(self, batch, index):
        return nn.functional.mse_loss(self.net(batch[0]), batch[1])

    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), 0.01)

    def on_train_end(self):
        check(wanted)

model = Module()
sampler = ShardedSampler(dataset, 2, int(os.environ.get("LOCAL_RANK", 0)), seed=3)
loader = DataLoader(dataset, batch_size=2, sampler=sampler)
wanted = []
for epoch in range(2):
    sampler.set_epoch(epoch)
    wanted += list(sampler)
"""
        code = snippet("Lightning Trainer").replace("max_epochs=2", "max_epochs=2, logger=False, enable_checkpointing=False, enable_progress_bar=False")
        self.run_program(BEFORE + module + code, launcher=False)

    @needs("lightning")
    def test_lightning_fabric(self):
        sampler = "sampler = ShardedSampler(dataset, 2, int(os.environ.get('LOCAL_RANK', 0)), seed=3)\nloader = DataLoader(dataset, batch_size=2, sampler=sampler)\n"
        self.run_program(BEFORE + sampler + snippet("Lightning Fabric") + "check(list(sampler))\n", launcher=False)

    @needs("accelerate")
    def test_accelerate(self):
        sampler = "sampler = ShardedSampler(dataset, num_replicas=1, rank=0, seed=3)\nloader = DataLoader(dataset, batch_size=2, sampler=sampler)\n"
        dealt = "assert accelerator.num_processes == 2\ncheck([i for k, i in enumerate(sampler) if k // 2 % 2 == dist.get_rank()])\n"
        self.run_program(BEFORE + sampler + snippet("accelerate") + dealt)

    @needs("transformers", "accelerate")
    def test_transformers(self):
        model = """
class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.net = net

    def forward(self, x, y):
        return {"loss": nn.functional.mse_loss(self.net(x), y)}

class Rows(torch.utils.data.Dataset):
    def __len__(self):
        return 20

    def __getitem__(self, i):
        return {"x": dataset[i][0], "y": dataset[i][1]}

model, dataset_of_rows = convert_sync_batchnorm(Model()), Rows()
"""
        code = snippet("transformers").replace("train_dataset=dataset", "train_dataset=dataset_of_rows").replace("max_steps=4", "num_train_epochs=1, per_device_train_batch_size=2, remove_unused_columns=False, save_strategy='no'")
        self.run_program(BEFORE + model + code + "check()\n")

    @needs("deepspeed")
    def test_deepspeed(self):
        sampler = """
import deepspeed

deepspeed.ops.__compatible_ops__["deepspeed_shm_comm"] = False  # it would be compiled, for inference
rank = int(os.environ["RANK"])
model = convert_sync_batchnorm(model)
loader = DataLoader(dataset, batch_size=8, sampler=ShardedSampler(dataset, 2, rank))
"""
        self.run_program(BEFORE + sampler + snippet("DeepSpeed") + "check(list(loader.sampler))\n", DS_ACCELERATOR="cpu")

    @needs("ray", "pandas", "pyarrow")
    def test_ray_train(self):
        train = """
def train():
    model = ray.train.torch.prepare_model(convert_sync_batchnorm(net))
    loader = ray.train.torch.prepare_data_loader(DataLoader(dataset, batch_size=2, sampler=ShardedSampler(dataset)))
    for x, y in loader:
        optimizer.zero_grad()
        nn.functional.mse_loss(model(x), y).backward()
        optimizer.step()
    check(list(ShardedSampler(dataset)))
"""
        code = snippet("Ray Train")
        self.run_program(BEFORE + train + "import ray\nray.init(num_cpus=2, include_dashboard=False, _temp_dir=os.getcwd())\n" + code, launcher=False, RAY_USAGE_STATS_ENABLED="0")

    @needs("pyspark")
    def test_spark(self):
        session = "from pyspark.sql import SparkSession\nsession = SparkSession.builder.master('local[2]').getOrCreate()\n"
        code = snippet("Spark").replace("    ...\n", "    print('checked', torch.distributed.get_rank(), flush=True)\n    torch.distributed.destroy_process_group()\n")
        self.run_program(session + code, launcher=False, PYSPARK_PYTHON=sys.executable)

    @needs("torchdata")
    def test_stateful_data_loader(self):
        code = "epoch, state, used = 1, None, []\nuse = lambda batch: used.extend((batch[0][:, 0] * 20).round().int().tolist())\ndist.init_process_group('rondo')\n"
        stopped = snippet("StatefulDataLoader").replace("    state = loader.state_dict()\n", "    state = loader.state_dict()\n    break\n")
        self.assertIn("break", stopped)
        check = "wanted = ShardedSampler(dataset)\nwanted.set_epoch(1)\nassert used == list(wanted), (used, list(wanted))\nprint('checked', dist.get_rank())\n"
        self.run_program(BEFORE + code + stopped + stopped + snippet("StatefulDataLoader") + check)

    @needs("timm")
    def test_timm(self):
        check = """
x = torch.randn(2, 3, 64, 64)
model.eval()
plain = timm.create_model("efficientnet_b0").eval()
plain.load_state_dict(model.state_dict())
assert torch.equal(model(x), plain(x))
assert any(type(layer) is SyncBatchNormAct2d for layer in model.modules())
print("checked 0")
"""
        self.run_program(BEFORE + snippet("timm") + check, launcher=False, ranks=1)

    def test_flight_recorder(self):
        code = "dist.init_process_group('rondo')\ndist.all_reduce(torch.ones(3))\ndist.barrier()\n"
        analyze = """
dist.barrier()
if dist.get_rank() == 0:
    import subprocess
    subprocess.run([sys.executable, "-m", "torch.distributed.flight_recorder.fr_trace", "--prefix", "trace_", "."], check=True)
print("checked", dist.get_rank())
"""
        output = self.run_program(BEFORE + code + snippet("The flight recorder") + analyze, TORCH_FR_DUMP_TEMP_FILE="trace_")
        self.assertIn("rondo:all_reduce", output)

    @needs("mypy")
    def test_types(self):
        """mypy --strict over the package and over a program that uses it."""
        user = pathlib.Path(__file__).with_name("typed_user.py")
        place = pathlib.Path(importlib.util.find_spec("rondo").origin).parent.parent
        with tempfile.TemporaryDirectory() as folder:
            for what in (["-p", "rondo"], [user]):
                command = [sys.executable, "-m", "mypy", "--strict", f"--cache-dir={folder}", *what]
                done = subprocess.run(command, cwd=folder, env=os.environ | {"MYPYPATH": str(place)}, capture_output=True, text=True, timeout=LIMIT)
                self.assertEqual(done.returncode, 0, done.stdout + done.stderr)


if __name__ == "__main__":
    unittest.main()
