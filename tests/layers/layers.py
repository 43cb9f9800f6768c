# SPDX-License-Identifier: Apache-2.0
"""Keeps the order of the tree: who may include whom, and the few manners that a program can check.

    layers.py ROOT      prints every violation as path:line: what, and what to do; exit status 1 when there is any

include/rondo -> base -> transports -> collectives -> lib; a folder may include itself and what stands to its left.
"""

import pathlib
import re
import sys

import definitions

ORDER = ["include", "base", "transports", "collectives", "lib"]
PUBLIC_ONLY = ["grad", "bn", "tools", "examples", "python"]
EVERYTHING = ["tests", "bench"]
CODE = {".h", ".cc", ".cu", ".cuh"}
OTHER_CODE = {".py", ".sh", ".map", ".cmake"}
OTHER_NAMES = {"meson.build", "meson_options.txt", "dev", "run"}
MOST_LINES = 400
SPDX = "SPDX-License-Identifier: Apache-2.0"
INCLUDE = re.compile(r'^\s*#\s*include\s*([<"])([^>"]+)[>"]')
CUDA = re.compile(r"^(cuda|cu[A-Z]|cub/|thrust/|cooperative_groups|nvml|device_launch_parameters|nvtx)")
VERBS = re.compile(r"^(infiniband|rdma)/")
ASIO = re.compile(r"^boost/asio")


def folder_of(path):
    return path.split("/")[0]


def may_use_asio(path):
    return path.startswith(("transports/tcp/", "lib/rendezvous", "lib/control"))


def may_use_verbs(path):
    return path.startswith("transports/rdma/")


def may_use_cuda(path):
    return path.startswith(("transports/cuda_ipc/", "lib/")) or path.endswith((".cu", ".cuh"))


# What rondo/c.h, the header for C, needs of the standard library.
C_LIBRARY = ("stddef.h", "stdint.h")


def foreign_include(path, target):
    """What is wrong with including a header of somebody else, if anything."""
    if folder_of(path) in EVERYTHING:
        return None
    if ASIO.match(target) and not may_use_asio(path):
        return f"<{target}>: Boost.Asio stays inside transports/tcp, lib/rendezvous* and lib/control*"
    if VERBS.match(target) and not may_use_verbs(path):
        return f"<{target}>: verbs headers stay inside transports/rdma"
    if CUDA.match(target) and not may_use_cuda(path):
        return f"<{target}>: CUDA headers stay inside transports/cuda_ipc, *.cu and one file of lib"
    if folder_of(path) == "include" and ("/" in target or target.endswith(".h")) and target not in C_LIBRARY:
        return f"<{target}>: public headers include only the standard library and rondo/"
    return None


def own_include(path, target, folders):
    """What is wrong with including a header of this tree, if anything."""
    here, there = folder_of(path), folder_of(target)
    if here in EVERYTHING or there == "rondo":
        return None
    if there not in folders:
        return f'"{target}": write the path from the root of the tree'
    if here in PUBLIC_ONLY:
        return None if here == there else f'"{target}": {here} includes the public headers <rondo/...> and itself only'
    if here == "include":
        return f'"{target}": public headers include only the standard library and rondo/'
    if there not in ORDER or ORDER.index(there) > ORDER.index(here):
        return f'"{target}": {here} may include {", ".join(ORDER[: ORDER.index(here) + 1])} only'
    concrete = re.match(r"transports/([^/]+)/", target)
    if concrete and not path.startswith(concrete.group(0)) and path != "lib/transports.cc":
        return f'"{target}": concrete transports are named in lib/transports.cc only'
    return None


def check_includes(path, lines, folders):
    for number, line in enumerate(lines, 1):
        match = INCLUDE.match(line)
        if not match:
            continue
        target = match.group(2)
        ours = match.group(1) == '"' or folder_of(target) == "rondo"
        problem = own_include(path, target, folders) if ours else foreign_include(path, target)
        if problem:
            yield f"{path}:{number}: {problem}"


def uses_cuda(lines):
    return any((match := INCLUDE.match(line)) and CUDA.match(match.group(2)) for line in lines)


def source_files(root):
    """Everything that people write here; folders of builds and hidden ones (but .ci) are not."""
    for path in sorted(root.rglob("*")):
        name = path.relative_to(root).as_posix()
        top = folder_of(name)
        if top.startswith("build") or top == "subprojects" or (top.startswith(".") and top != ".ci"):
            continue
        known = path.suffix in CODE | OTHER_CODE or path.name in OTHER_NAMES
        if known and path.is_file() and not path.is_symlink():
            yield name, path


def check_tree(root):
    """All violations below root, a pathlib.Path."""
    folders = ORDER + PUBLIC_ONLY + EVERYTHING
    problems, cuda_in_lib, texts = [], [], []
    for name, path in source_files(root):
        lines = path.read_text(encoding="utf-8", errors="replace").splitlines()
        if not any(SPDX in line for line in lines[:2]):
            problems.append(f"{name}:1: no line '{SPDX}' at the top")
        if len(lines) > MOST_LINES:
            problems.append(f"{name}:{len(lines)}: {len(lines)} lines; split it, {MOST_LINES} is the most")
        if path.suffix not in CODE:
            continue
        if folder_of(name) not in folders:
            problems.append(f"{name}:1: there is no folder {folder_of(name)} in the design; the folders are {', '.join(folders)}")
            continue
        problems += check_includes(name, lines, folders)
        if folder_of(name) not in EVERYTHING:
            texts.append((name, "\n".join(lines)))
        if folder_of(name) == "lib" and path.suffix != ".cu" and uses_cuda(lines):
            cuda_in_lib.append(name)
    if len(cuda_in_lib) > 1:
        problems.append(f"{cuda_in_lib[1]}:1: one file of lib may include CUDA headers, not {len(cuda_in_lib)}: {', '.join(cuda_in_lib)}")
    return problems + list(definitions.twice(texts))


if __name__ == "__main__":
    found = check_tree(pathlib.Path(sys.argv[1]))
    print("\n".join(found) if found else "every include points to the left, every type has one definition")
    sys.exit(1 if found else 0)
