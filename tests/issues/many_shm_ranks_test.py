# SPDX-License-Identifier: Apache-2.0
"""96 ranks of one host meet through shared memory as an ordinary user with `ulimit -n 1024`, where descriptors in flight are bounded.
Usage: many_shm_ranks_test.py PROGRAM [RANKS]"""
import os
import resource
import subprocess
import sys

NOBODY = 65534


def become_ordinary():
    resource.setrlimit(resource.RLIMIT_NOFILE, (1024, 1024))
    if os.geteuid() == 0:
        os.setgroups([])
        os.setresgid(NOBODY, NOBODY, NOBODY)
        os.setresuid(NOBODY, NOBODY, NOBODY)


def main():
    program = os.path.abspath(sys.argv[1])
    ranks = sys.argv[2] if len(sys.argv) > 2 else '96'
    probe = subprocess.run([program, '--version'], preexec_fn=become_ordinary, cwd='/', capture_output=True, check=False)
    if probe.returncode != 0:
        print('skipped: an ordinary user cannot run', program)
        return 77
    environment = dict(os.environ, RONDO_TRANSPORT='shm', RONDO_CONNECT_DEADLINE='900')
    done = subprocess.run([program, 'run', '-n', ranks, '--', program, 'bench', 'barrier', '-n', '2', '-w', '1', '--no-ceiling'],
                          preexec_fn=become_ordinary, cwd='/', env=environment, capture_output=True, text=True, check=False)
    print(done.stdout[-2000:], done.stderr[-2000:], sep='\n')
    return 0 if done.returncode == 0 else 1


if __name__ == '__main__':
    try:
        sys.exit(main())
    except (PermissionError, subprocess.SubprocessError) as why:
        print('skipped:', why)
        sys.exit(77)
