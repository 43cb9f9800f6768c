# SPDX-License-Identifier: Apache-2.0
"""Builds the wheel as `pip install ./python` does, and tries it away from the build.

    wheel_test.py SOURCE BUILD_FOLDER

It needs the tools of ./dev setup --torch: it downloads nothing.
"""

import os
import subprocess
import sys
import tempfile
import zipfile
from pathlib import Path

HERE = Path(__file__).resolve().parent
CONTENTS = {"rondo/librondo_python.so", "rondo/__init__.py", "rondo/py.typed", "rondo/_core.pyi"}


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
    """Builds the wheel into a folder and returns its path. Unoptimized: that is a third of the time."""
    variables = {**os.environ, "PATH": f"{tools / 'bin'}:{os.environ['PATH']}"}
    command = [tools / "bin/python", "-m", "pip", "wheel", "--quiet", "--no-build-isolation", "--no-deps", "--no-index", f"--config-settings=build-dir={build_folder}",
               "--config-settings=setup-args=-Doptimization=0", "--config-settings=setup-args=-Drondo:optimization=0", "-w", folder, source / "python"]
    subprocess.run(command, check=True, env=variables)
    [wheel] = Path(folder).glob("rondo-*.whl")
    return wheel


def main():
    source, build_folder = (Path(argument).resolve() for argument in sys.argv[1:])
    if os.environ.get("RONDO_TEST_ALL") != "1":
        skip("it builds the whole library anew, which takes minutes: set RONDO_TEST_ALL=1, as .ci/run does")
    tools = environment(source)
    with tempfile.TemporaryDirectory() as folder:
        with zipfile.ZipFile(build(source, build_folder, tools, folder)) as wheel:
            names = set(wheel.namelist())
            assert CONTENTS <= names, names
            assert not [name for name in names if not name.startswith("rondo")], names
            wheel.extractall(f"{folder}/site")
        variables = {**os.environ, "PYTHONPATH": f"{folder}/site"}
        variables.pop("LD_LIBRARY_PATH", None)
        for test in "package_test.py", "buffers_test.py":
            subprocess.run([tools / "bin/python", "-B", HERE / test], check=True, env=variables, cwd="/")


if __name__ == "__main__":
    main()
