#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Makes stand-ins for the CUDA libraries that torch's wheel needs, on a test machine without a GPU.

    stand_ins.py FOLDER     FOLDER is .../site-packages/torch/lib

The wheel for Linux is the one for CUDA, and `import torch` fails where CUDA's libraries (4 GB) are
absent. A stand-in has the name and the symbols of such a library, and no contents: its functions
return 100, which is "no device" to CUDA. They lie beside torch's own libraries, where the loader
looks first. Libraries of NVIDIA's packages for Python are left alone. Never ship what this program makes.
"""

import collections
import dataclasses
import os
import re
import subprocess
import sys
import tempfile
from pathlib import Path

STAND_FOR = re.compile(r"lib(cu|nv|nccl)")
# Which library has a symbol without a version; the first match counts.
PREFIXES = {"cusparseLt": "libcusparseLt", "cuFile": "libcufile", "nccl": "libnccl", "nvshmem": "libnvshmem_host", "nvJitLink": "libnvJitLink",
            "nvrtc": "libnvrtc", "cupti": "libcupti", "cusolver": "libcusolver", "cudnn": "libcudnn", "cu": "libcuda"}


@dataclasses.dataclass
class Needs:
    """What libraries need of others: sonames, and for each soname symbols as (name, version, is_object)."""

    sonames: set = dataclasses.field(default_factory=set)
    symbols: dict = dataclasses.field(default_factory=lambda: collections.defaultdict(set))


def soname_for(name, sonames):
    """The one of the sonames that has an unversioned symbol of this name; None if it is none of them."""
    for prefix, library in PREFIXES.items():
        if name.startswith(prefix):
            return next((soname for soname in sonames if soname.startswith(library + ".so")), None)
    return None


def read_needs(library, needs):
    """Adds what one ELF file needs."""
    text = subprocess.run(["readelf", "-W", "-d", "-V", "--dyn-syms", library], check=True, capture_output=True, text=True).stdout
    own = {soname for soname in re.findall(r"\(NEEDED\).*\[(.+)\]", text) if STAND_FOR.match(soname)}
    needs.sonames |= own
    # "000010: Version: 1  File: libcudart.so.13  Cnt: 1", then "0x0020:   Name: libcudart.so.13  Flags: none  Version: 5"
    versions, soname = {}, None
    for file, version in re.findall(r"Version: \d+  File: (\S+)|  Name: (\S+)  Flags:", text):
        soname = file or soname
        if version and soname in own:
            versions[version] = soname
    # "  12: 0000000000000000     0 FUNC    GLOBAL DEFAULT  UND cudaFree@libcudart.so.13 (5)"
    for kind, name, version in re.findall(r" (FUNC|OBJECT|NOTYPE) +GLOBAL +DEFAULT +UND (\w+)(?:@([^\s(]+))?", text):
        of = versions.get(version) if version else soname_for(name, own)
        if of:
            needs.symbols[of].add((name, version, kind == "OBJECT"))


def is_there(soname, folder):
    """Whether the library lies beside torch's, or in one of NVIDIA's packages. What a toolkit on this
    machine has does not count: its version is another, and torch looks in its own folders first."""
    return Path(folder, soname).exists() or any(Path(folder).parents[1].glob(f"nvidia/*/lib/{soname}"))


def source(symbols):
    """The C source with these symbols."""
    lines = []
    for name, _, is_object in sorted(symbols):
        if is_object:
            lines.append(f"char {name}[4096];")
        elif re.search(r"(Error|Status)(String|Name)$|LastError$", name) and not re.match(r"cu[A-Z]|cudaGetLastError", name):
            lines.append(f'const char *{name}(void) {{ return "a stand-in without contents (tests/torch/stand_ins.py)"; }}')
        else:
            lines.append(f"int {name}(void) {{ return 100; }}")
    return "\n".join(lines) + "\n"


def version_script(symbols):
    """The linker's version script that gives each symbol the version that torch asks for."""
    names = collections.defaultdict(list)
    for name, version, _ in sorted(symbols):
        names[version].append(name)
    return "".join(f"{version} {{ global: {'; '.join(names[version])}; }};\n" for version in names if version)


def make(soname, symbols, folder):
    """Compiles and links one stand-in into the folder."""
    with tempfile.TemporaryDirectory(dir=folder) as work:
        code, script, library = Path(work, "code.c"), Path(work, "versions"), Path(work, soname)
        code.write_text(source(symbols))
        script.write_text(version_script(symbols))
        versioned = [f"-Wl,--version-script={script}"] if script.read_text() else []
        subprocess.run([os.environ.get("CC", "cc"), "-w", "-fPIC", "-fno-builtin", "-shared", "-nostdlib", f"-Wl,-soname,{soname}", *versioned, "-o", library, code],
                       check=True)
        library.rename(Path(folder, soname))


def main():
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    folder, needs = Path(sys.argv[1]).resolve(), Needs()
    for library in sorted(folder.glob("*.so")):
        read_needs(library, needs)
    for soname in sorted(needs.sonames):
        if not is_there(soname, folder):
            make(soname, needs.symbols[soname], folder)
            print(f"{soname}: {len(needs.symbols[soname])} symbols")


if __name__ == "__main__":
    main()
