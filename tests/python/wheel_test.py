# SPDX-License-Identifier: Apache-2.0
"""Builds the wheel as `pip install ./python` does, with the backend for PyTorch, installs it into a
fresh virtual environment, and tries it there, away from the build.

    wheel_test.py SOURCE BUILD_FOLDER

It needs the tools of ./dev setup --torch: it downloads nothing.
"""

import os
import subprocess
import sys
import tempfile
import venv
import zipfile
from pathlib import Path

HERE = Path(__file__).resolve().parent
CONTENTS = {"rondo/librondo_python.so", "rondo/__init__.py", "rondo/py.typed", "rondo/_core.pyi", "rondo/torch/__init__.py"}

# The program of each of two ranks that torchrun starts. The name of the backend is all that it needs.
RANK = """
import sys, torch, torch.distributed as dist
dist.init_process_group("rondo")
x = torch.ones(3)
dist.all_reduce(x)
assert x.tolist() == [2.0] * 3, x
from rondo.torch import SyncBatchNorm
rows = torch.randn(10, 4, generator=torch.Generator().manual_seed(1))
own = slice(5 * dist.get_rank(), 5 * dist.get_rank() + 5)
torch.testing.assert_close(SyncBatchNorm(4)(rows[own]), torch.nn.BatchNorm1d(4)(rows)[own])
assert sys.modules["rondo"].__file__.startswith(sys.prefix), sys.modules["rondo"].__file__
dist.destroy_process_group()
"""

OTHER_TORCH = """
import torch, torch.distributed as dist
torch.__version__ = "2.99.1"
try:
    dist.init_process_group("rondo", store=dist.HashStore(), rank=0, world_size=1)
except ImportError as error:
    assert "this is torch 2.99.1" in str(error) and "pip install --no-build-isolation" in str(error), error
else:
    raise SystemExit("no error")
"""


def skip(why):
    print("skipped:", why)
    sys.exit(77)


def environment(source):
    """The virtual environment that has meson-python."""
    found = subprocess.run([sys.executable, "-B", source / "tests/torch/environment.py", "--find"], capture_output=True, text=True)
    if found.returncode != 0:
        skip("there is no virtual environment with meson-python (./dev setup --torch makes it)")
    return Path(found.stdout.strip())


def build(source, build_folder, tools, folder):
    """Builds the wheel into a folder and returns its path. Unoptimized, which is a third of the time, and
    without kernels for GPUs, which other tests have."""
    variables = {**os.environ, "PATH": f"{tools / 'bin'}:{os.environ['PATH']}"}
    command = [tools / "bin/python", "-m", "pip", "wheel", "--quiet", "--no-build-isolation", "--no-deps", "--no-index", f"--config-settings=build-dir={build_folder}",
               "--config-settings=setup-args=-Doptimization=0", "--config-settings=setup-args=-Drondo:optimization=0",
               "--config-settings=setup-args=-Drondo:cuda=disabled", "-w", folder, source / "python"]
    subprocess.run(command, check=True, env=variables)
    [wheel] = Path(folder).glob("rondo-*.whl")
    return wheel


def install(wheel, tools, folder):
    """Makes an environment with the wheel and the torch of `tools`, and returns its interpreter."""
    venv.create(folder, symlinks=True)
    python = Path(folder) / "bin/python"
    subprocess.run([tools / "bin/python", "-m", "pip", f"--python={python}", "install", "--quiet", "--no-deps", "--no-index", wheel], check=True)
    [packages] = Path(folder).glob("lib/python*/site-packages")
    [others] = tools.glob("lib/python*/site-packages")
    (packages / "others.pth").write_text(f"{others}\n")
    return python


def try_torch(python, folder):
    """Two ranks by torchrun, and a torch of another version."""
    program = Path(folder) / "rank.py"
    program.write_text(RANK)
    torchrun = [python, "-B", "-m", "torch.distributed.run", "--nproc-per-node=2", "--rdzv-backend=c10d", "--rdzv-endpoint=localhost:0"]
    for command in [*torchrun, program], [python, "-B", "-c", OTHER_TORCH]:
        subprocess.run(command, check=True, env=clean_environment(), cwd="/", timeout=300)


def clean_environment():
    """The environment without what could lead to the build."""
    return {name: value for name, value in os.environ.items() if name not in ("PYTHONPATH", "LD_LIBRARY_PATH")}


def main():
    source, build_folder = (Path(argument).resolve() for argument in sys.argv[1:])
    tools = environment(source)
    with tempfile.TemporaryDirectory() as folder:
        path = build(source, build_folder, tools, folder)
        with zipfile.ZipFile(path) as wheel:
            names = set(wheel.namelist())
        assert CONTENTS <= names, names
        assert not [name for name in names if not name.startswith("rondo")], names
        python = install(path, tools, f"{folder}/environment")
        for test in "package_test.py", "buffers_test.py":
            subprocess.run([python, "-B", HERE / test], check=True, env=clean_environment(), cwd="/")
        try_torch(python, folder)


if __name__ == "__main__":
    main()
