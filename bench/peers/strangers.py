#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Busy processes beside the libraries, as data loaders or other programs are. Run as a program it
is one of them: it computes until its standard input ends."""

import os
import subprocess
import sys
import threading
from contextlib import contextmanager


class Ended(Exception):
    """A stranger has ended by itself, so libraries ran beside fewer than --strangers says."""


class Strangers:
    """Processes that compute without a pause, not niced and not bound. They end with the driver,
    however it ends: their standard input is a pipe of which it alone has the other end."""

    def __init__(self, count: int):
        command = [sys.executable, "-B", __file__]
        self._processes = [subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.DEVNULL, start_new_session=True)
                           for _ in range(count)]

    def check(self) -> None:
        for process in self._processes:
            if process.poll() is not None:
                raise Ended(f"a stranger ended with status {process.returncode}")

    def stop(self) -> None:
        for process in self._processes:
            process.kill()
            process.communicate()


@contextmanager
def strangers(count: int):
    running = Strangers(count)
    try:
        yield running
    finally:
        running.stop()


def compute() -> None:
    while True:
        pass


if __name__ == "__main__":
    threading.Thread(target=compute, daemon=True).start()
    sys.stdin.buffer.read()
    os._exit(0)
