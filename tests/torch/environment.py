#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Makes the virtual environment with PyTorch in which Rondo's package for Python is tested.

    environment.py            makes it, unless it is there, and prints its folder
    environment.py --find     prints its folder, or ends with status 1 if it is not there or not complete

It lies in the user's cache, so all checkouts share it: ./dev setup --torch downloads 0.6 GB once, and
it takes 1.4 GB. It belongs to the interpreter that runs this program.
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


def folder():
    """Where the environment of these requirements and this interpreter lies."""
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    torch = re.search(r"^torch==(\S+)", REQUIREMENTS.read_text(), re.MULTILINE).group(1)
    return cache / "rondo" / f"torch-{torch}-{sys.implementation.cache_tag}"


def contents():
    """Changes when the environment must be made anew."""
    return hashlib.sha256(REQUIREMENTS.read_bytes() + STAND_INS.read_bytes() + sysconfig.get_platform().encode()).hexdigest()


def is_complete(environment):
    """Whether the environment is whole and up to date."""
    try:
        return (environment / "complete").read_text() == contents()
    except OSError:
        return False


def make(environment):
    """Makes it, or brings it up to date."""
    (environment / "complete").unlink(missing_ok=True)
    venv.create(environment, with_pip=True)
    python = environment / "bin" / "python"
    subprocess.run([python, "-m", "pip", "install", "--quiet", "--no-deps", "--disable-pip-version-check", "-r", REQUIREMENTS], check=True, stdout=sys.stderr)
    [libraries] = environment.glob("lib/python*/site-packages/torch/lib")
    subprocess.run([python, STAND_INS, libraries], check=True, stdout=sys.stderr)
    subprocess.run([python, "-c", "import torch.distributed; assert torch.distributed.is_available()"], check=True, stdout=sys.stderr)
    (environment / "complete").write_text(contents())


def main():
    environment = folder()
    if sys.argv[1:] == ["--find"]:
        if not is_complete(environment):
            return 1
    elif sys.argv[1:]:
        sys.exit(__doc__)
    else:
        environment.parent.mkdir(parents=True, exist_ok=True)
        # Two checkouts may ask at the same time.
        with open(environment.parent / f"{environment.name}.lock", "w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            if not is_complete(environment):
                make(environment)
    print(environment)
    return 0


if __name__ == "__main__":
    sys.exit(main())
