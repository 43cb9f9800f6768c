# SPDX-License-Identifier: Apache-2.0
"""Checks which folder may include which, that each folder has a row in tests/suites.txt, and the
few other rules that a program can check.

    layers.py ROOT      prints each violation as path:line: problem and remedy; exit status 1 if any

include/rondo -> base -> device -> transports -> collectives -> lib: a folder may include itself and
the folders to its left. Inside transports: transport.h -> connect, host -> the transports; inside
other folders: see ROOMS. No two rooms include each other. A room has a namespace with the name of its
folder; public names are in rondo.
"""

import pathlib
import re
import sys

import definitions

sys.path.append(str(pathlib.Path(__file__).resolve().parent.parent))
import suites  # noqa: E402

ORDER = ["include", "base", "device", "transports", "collectives", "lib"]
PUBLIC_AND_BASE = ["training", "grad", "bn", "tools", "python"]
# Says what some of them include besides.
ALSO = {"training": {"device"}, "grad": {"device", "training"}, "bn": {"device"}}
PUBLIC_ONLY = ["examples"]
# The rooms of a folder by level: a room includes itself and lower levels. "" are the files that lie in
# the folder itself.
ROOMS = {
    "collectives": {"schedules": 0, "proof": 1, "plan": 1, "kernels": 1, "operation": 2, "direct": 3, "point": 3, "lanes": 4, "engine": 5, "gpu": 5},
    "grad": {"device": 0, "": 1},
    "bn": {"statistics": 0, "layer/kernels": 1, "layer/device": 2, "layer": 3},
    "lib": {"metrics": 0, "wire": 0, "settings": 1, "control": 1, "rendezvous": 2, "recorder": 3, "": 4, "c": 5},
    "tools": {"shared": 0, "ranks": 1, "late": 1, "measure": 2, "ceilings": 3, "records": 3, "plan": 4, "bench": 4, "plots": 4, "trace": 4,
              "pairs": 5, "": 6},
}
# Functions of lib for rooms above it: programs do not see them.
INNER = ("grad", "bn"), "lib/inner.h"
# Rooms in which nobody needs to know of GPUs, and the files of theirs that speak of them.
WITHOUT_GPUS = {f"collectives/{room}" for room in ("operation", "lanes", "direct", "point", "engine")}
DOOR_TO_GPUS = {"collectives/operation/device_memory.h", "collectives/operation/device_memory.cc", "collectives/operation/watch.cc"}
# Rooms of transports that several transports share.
SHARED_TRANSPORTS = {"connect", "host"}
EVERYTHING = ["tests", "bench"]
CODE = {".h", ".cc", ".cu", ".cuh"}
OTHER_CODE = {".py", ".sh", ".map", ".cmake"}
OTHER_NAMES = {"meson.build", "meson_options.txt", "dev", "run"}
ADVISED_LINES = 400
# The tool that measures what devices reach without Rondo.
DEVICE_CEILING = ("tools/ceilings/device_ceiling.cc", ("lib/device_stream.h", "transports/stream.h"))
SPDX = "SPDX-License-Identifier: Apache-2.0"
INCLUDE = re.compile(r'^\s*#\s*include\s*([<"])([^>"]+)[>"]')
CUDA = re.compile(r"^(cuda|cu[A-Z]|cub/|thrust/|cooperative_groups|nvml|device_launch_parameters|nvtx)")
VERBS = re.compile(r"^(infiniband|rdma)/")
ASIO = re.compile(r"^boost/asio")
HWLOC = re.compile(r"^hwloc(\.h|/)")


def folder_of(path):
    return path.split("/")[0]


def may_use_asio(path):
    return path.startswith("transports/connect/")


def may_use_verbs(path):
    return path.startswith("transports/rdma/")


def may_use_cuda(path):
    return path.startswith("device/") or path.endswith((".cu", ".cuh"))


def may_use_hwloc(path):
    return path == "tools/ranks/bind.cc"


# The standard headers that rondo/c.h, the header for C, needs.
C_LIBRARY = ("stddef.h", "stdint.h")


def foreign_include(path, target):
    """The problem with including a header of another project, or None."""
    if folder_of(path) in EVERYTHING:
        return None
    if ASIO.match(target) and not may_use_asio(path):
        return f"<{target}>: Boost.Asio stays inside transports/connect"
    if HWLOC.match(target) and not may_use_hwloc(path):
        return f"<{target}>: hwloc stays inside tools/ranks/bind.cc; the library needs none"
    if VERBS.match(target) and not may_use_verbs(path):
        return f"<{target}>: verbs headers stay inside transports/rdma"
    if CUDA.match(target) and not may_use_cuda(path):
        return f"<{target}>: CUDA headers stay inside device and *.cu"
    if folder_of(path) == "include" and ("/" in target or target.endswith(".h")) and target not in C_LIBRARY:
        return f"<{target}>: public headers include only the standard library and rondo/"
    return None


def own_include(path, target, folders):
    """The problem with including a header of this tree, or None."""
    here, there = folder_of(path), folder_of(target)
    if here in EVERYTHING or there == "rondo":
        return None
    if there not in folders:
        return f'"{target}": write the path from the root of the tree'
    if here in PUBLIC_ONLY:
        return None if here == there else f'"{target}": {here} includes the public headers <rondo/...> and itself only'
    if path == DEVICE_CEILING[0] and target in DEVICE_CEILING[1]:
        return None
    if there in ALSO.get(here, ()) or (here in INNER[0] and target == INNER[1]):
        return None
    if here in PUBLIC_AND_BASE and here != there:
        return None if there == "base" else f'"{target}": {here} includes <rondo/...>, base and itself only'
    if here == "include":
        return f'"{target}": public headers include only the standard library and rondo/'
    if here in ORDER and (there not in ORDER or ORDER.index(there) > ORDER.index(here)):
        return f'"{target}": {here} may include {", ".join(ORDER[: ORDER.index(here) + 1])} only'
    return room_include(path, target)


def room_include(path, target):
    """The problem with including a header of another room, or None."""
    here, there = room_of(path), room_of(target)
    if here != there and target.startswith("transports/") and there not in SHARED_TRANSPORTS | {"transports"}:
        if path != "lib/transports.cc":
            return f'"{target}": concrete transports are named in lib/transports.cc only'
    if path.startswith("transports/") and here in SHARED_TRANSPORTS and there not in ("transports", here) and target.startswith("transports/"):
        return f'"{target}": transports/{here} may include transports/transport.h and itself only'
    levels = ROOMS.get(folder_of(path)) if folder_of(path) == folder_of(target) else None
    return levels and level_include(path, target, levels)


def level_include(path, target, levels):
    """The problem with including a header of another room of the same folder, or None."""
    here, there = (room_within(name, levels) for name in (path, target))
    for name, room in (path, here), (target, there):
        if room not in levels:
            return f'"{name}": the rooms of {folder_of(name)} are {", ".join(filter(None, levels))}'
    if here == there or levels[there] < levels[here]:
        return None
    return f'"{target}": the order in {folder_of(path)} is {" <= ".join(sorted(filter(None, levels), key=levels.get))}'


def room_within(name, levels):
    """The room of a file inside its folder: the deepest that has a level."""
    parts = name.split("/")[1:-1]
    return "/".join(parts) if "/".join(parts) in levels else "".join(parts[:1])


def room_of(path):
    """The room of a file, which names its namespace; "" for the public headers."""
    parts = path.split("/")
    if parts[0] in ("include", "rondo"):
        return ""
    nested = parts[0] in ("transports", "collectives", "lib", "bn") and len(parts) > 2
    return parts[1] if nested else parts[0]



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


NAMESPACE = re.compile(r"^namespace (rondo[\w:]*) \{\n((?:(?:class|struct) \w+;\n)*\})?", re.MULTILINE)


def check_pairs(files):
    """Two rooms that include each other are one room, or miss a third. files: pairs (path, text)."""
    first = {}  # (room, room): where the one includes the other
    for path, text in files:
        for number, line in enumerate(text.split("\n"), 1):
            match = INCLUDE.match(line)
            if not match or match.group(1) != '"':
                continue
            pair = path.rpartition("/")[0], match.group(2).rpartition("/")[0]
            if pair[0] == pair[1] or first.setdefault(pair, f"{path}:{number}") != f"{path}:{number}":
                continue
            if back := first.get(pair[::-1]):
                yield f"{path}:{number}: {pair[1]} includes {pair[0]} too, at {back}"


COMMENT = re.compile(r"^\s*(?:.*;\s+|.*,\s+)?// (What|Of|The same|Who)\b")


def check_comments(path, lines):
    """A comment names its subject: one that begins with "What" or "Of" leaves it to the code below."""
    for number, line in enumerate(lines, 1):
        match = COMMENT.match(line)
        follows = number > 1 and lines[number - 2].lstrip().startswith("//") and line.lstrip().startswith("//")
        if match and not follows:
            yield f'{path}:{number}: a comment begins with "{match.group(1)}"; say what it is about'


def check_gpus(path, lines):
    """A reader of the way over the processor meets no GPU: DeviceMemory is the one door to them."""
    if path.rpartition("/")[0] in WITHOUT_GPUS and path not in DOOR_TO_GPUS:
        for number, line in enumerate(lines, 1):
            if "gpu" in line.lower() and not INCLUDE.match(line):
                yield f"{path}:{number}: speaks of GPUs; they are the affair of collectives/gpu, behind operation/device_memory.h"


def check_namespaces(path, text):
    """A room defines names in its own namespace, and in rondo only what public headers declare."""
    room = room_of(path)
    own = {"rondo", f"rondo::{room}"} if room else {"rondo"}
    for match in NAMESPACE.finditer(text):
        forward_declarations = match.group(2)
        if match.group(1) not in own and not forward_declarations:
            line = text.count("\n", 0, match.start()) + 1
            yield f"{path}:{line}: namespace {match.group(1)}; this room has {' and '.join(sorted(own))}"
    if not room:
        return
    for name, line in definitions.types_of(text):
        if re.fullmatch(r"rondo::\w+", name):
            yield f"{path}:{line}: {name} is not public; define it in rondo::{room}"


def source_files(root):
    """All files that people write, without build folders and hidden folders other than .ci."""
    for top in sorted(root.iterdir()):
        # Another build may be making folders there meanwhile.
        if top.is_dir() and (top.name.startswith("build") or top.name == "subprojects" or (top.name.startswith(".") and top.name != ".ci")):
            continue
        for path in sorted([top, *top.rglob("*")]):
            known = path.suffix in CODE | OTHER_CODE or path.name in OTHER_NAMES
            if known and path.is_file() and not path.is_symlink():
                yield path.relative_to(root).as_posix(), path


def check_tree(root):
    """Returns all violations and all advice for the tree below root, a pathlib.Path."""
    folders = ORDER + PUBLIC_AND_BASE + PUBLIC_ONLY + EVERYTHING
    problems, advice, texts, test_texts = [], [], [], []
    for name, path in source_files(root):
        lines = path.read_text(encoding="utf-8", errors="replace").splitlines()
        if not any(SPDX in line for line in lines[:2]):
            problems.append(f"{name}:1: no line '{SPDX}' at the top")
        if len(lines) > ADVISED_LINES:
            advice.append(f"{name}: {len(lines)} lines: is it one idea?")
        if path.suffix not in CODE:
            continue
        if folder_of(name) not in folders:
            problems.append(f"{name}:1: there is no folder {folder_of(name)} in the design; the folders are {', '.join(folders)}")
            continue
        problems += check_includes(name, lines, folders)
        problems += check_comments(name, lines)
        problems += check_gpus(name, lines)
        if folder_of(name) == "tests":
            test_texts.append((name, "\n".join(lines)))
        elif folder_of(name) not in EVERYTHING:
            texts.append((name, "\n".join(lines)))
        if folder_of(name) not in EVERYTHING + PUBLIC_ONLY:
            problems += check_namespaces(name, texts[-1][1])
    problems += definitions.twice(texts)
    problems += check_pairs(texts)
    # A test program is the library, tests/support and the files of one folder.
    for folder in {name.rsplit("/", 1)[0] for name, _ in test_texts} - {"tests/support"}:
        own = [pair for pair in test_texts if pair[0].rsplit("/", 1)[0] in ("tests/support", folder)]
        problems += [p for p in definitions.twice(texts + own) if p not in problems]
    return problems, advice


if __name__ == "__main__":
    top = pathlib.Path(sys.argv[1])
    found, advised = check_tree(top)
    found += suites.problems(top, [name for name, _ in source_files(top)])
    print("\n".join(advised + (found or ["every include points to the left, every type has one definition, every folder has its suites"])))
    sys.exit(1 if found else 0)
