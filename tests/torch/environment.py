#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Makes the virtual environments in which Rondo's package for Python is tested: with PyTorch, and with
frameworks that use it.

    environment.py                        makes the one with PyTorch, unless it is there, and prints
                                          its folder
    environment.py --frameworks           so for the one with frameworks, which sees that PyTorch
    environment.py [--frameworks] --find  prints the folder, or ends with status 1 if it is not there
                                          or not complete

They lie in the user's cache, so all checkouts share them: ./dev setup --torch downloads 0.6 GB once,
and takes 1.4 GB; with --frameworks it is 0.2 GB and 0.9 GB more. They belong to the interpreter that
runs this program.
"""

import fcntl
import hashlib
import os
import re
import subprocess
import sys
import sysconfig
import venv
from pathlib import Path

HERE = Path(__file__).resolve().parent
REQUIREMENTS, STAND_INS = HERE / "requirements.txt", HERE / "stand_ins.py"
FRAMEWORKS = HERE.parent / "frameworks" / "requirements.txt"


def folder(kind="torch"):
    """Where the environment of these requirements and this interpreter lies."""
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    torch = re.search(r"^torch==(\S+)", REQUIREMENTS.read_text(), re.MULTILINE).group(1)
    return cache / "rondo" / f"{kind}-{torch}-{sys.implementation.cache_tag}"


def contents(kind):
    """Changes when the environment must be made anew."""
    files = [REQUIREMENTS, STAND_INS] + [FRAMEWORKS] * (kind == "frameworks")
    return hashlib.sha256(b"".join(file.read_bytes() for file in files) + sysconfig.get_platform().encode()).hexdigest()


def is_complete(kind):
    """Whether the environment is whole and up to date."""
    try:
        return (folder(kind) / "complete").read_text() == contents(kind)
    except OSError:
        return False


def make(kind):
    """Makes it, or brings it up to date."""
    environment = folder(kind)
    (environment / "complete").unlink(missing_ok=True)
    venv.create(environment, with_pip=True)
    python = environment / "bin" / "python"
    requirements = REQUIREMENTS
    if kind == "frameworks":
        requirements = FRAMEWORKS
        [torch] = ensure("torch").glob("lib/python*/site-packages")
        [packages] = environment.glob("lib/python*/site-packages")
        (packages / "torch.pth").write_text(f"{torch}\n")
    # DeepSpeed comes as sources: its kernels are not built.
    subprocess.run([python, "-m", "pip", "install", "--quiet", "--no-deps", "--disable-pip-version-check", "-r", requirements],
                   env=os.environ | {"DS_BUILD_OPS": "0"}, check=True, stdout=sys.stderr)  # fmt: skip
    if kind == "torch":
        [libraries] = environment.glob("lib/python*/site-packages/torch/lib")
        subprocess.run([python, STAND_INS, libraries], check=True, stdout=sys.stderr)
    subprocess.run([python, "-c", "import torch.distributed; assert torch.distributed.is_available()"], check=True, stdout=sys.stderr)
    (environment / "complete").write_text(contents(kind))


def ensure(kind):
    """Makes the environment, unless it is there, and returns its folder."""
    environment = folder(kind)
    environment.parent.mkdir(parents=True, exist_ok=True)
    # Two checkouts may ask at the same time.
    with open(environment.parent / f"{environment.name}.lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not is_complete(kind):
            make(kind)
    return environment


def main():
    options = sys.argv[1:]
    kind = "frameworks" if "--frameworks" in options else "torch"
    if set(options) - {"--frameworks", "--find"}:
        sys.exit(__doc__)
    if "--find" not in options:
        ensure(kind)
    elif not is_complete(kind):
        return 1
    print(folder(kind))
    return 0


if __name__ == "__main__":
    sys.exit(main())
