# SPDX-License-Identifier: Apache-2.0
"""96 ranks of one host join over shared memory as an ordinary user with `ulimit -n 1024`, for whom
descriptors in flight are limited.
Usage: many_shm_ranks_test.py PROGRAM [RANKS]"""
import os
import pathlib
import resource
import subprocess
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "tools"))
from program import rondo_for_every_user  # noqa: E402

NOBODY = 65534


def become_ordinary():
    resource.setrlimit(resource.RLIMIT_NOFILE, (1024, 1024))
    if os.geteuid() == 0:
        os.setgroups([])
        os.setresgid(NOBODY, NOBODY, NOBODY)
        os.setresuid(NOBODY, NOBODY, NOBODY)


def main():
    program = rondo_for_every_user()
    ranks = sys.argv[1] if len(sys.argv) > 1 else '96'
    environment = dict(os.environ, RONDO_TRANSPORT='shm', RONDO_CONNECT_DEADLINE='900')
    done = subprocess.run([program, 'run', '-n', ranks, '--', program, 'bench', 'barrier', '-n', '2', '-w', '1', '--no-ceiling'],
                          preexec_fn=become_ordinary, cwd='/', env=environment, capture_output=True, text=True, check=False)
    print(done.stdout[-2000:], done.stderr[-2000:], sep='\n')
    return 0 if done.returncode == 0 else 1


if __name__ == '__main__':
    sys.exit(main())
