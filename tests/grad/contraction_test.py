# SPDX-License-Identifier: Apache-2.0
"""No product of a norm or of a wire type is fused with an addition, also where the program is built for a processor that can
(-mfma): a fused operation rounds once, and ranks with other flags would get other bits.
Usage: contraction_test.py BUILD_FOLDER SOURCE_FOLDER [unittest arguments]"""

import json
import pathlib
import re
import shlex
import subprocess
import sys
import unittest

BUILD, SOURCE = (pathlib.Path(argument).resolve() for argument in sys.argv[1:3])
FUSED = re.compile(r"\bvf(n?m(add|sub)|maddsub|msubadd)\w*")
FILES = ["host_kernels.cc", "passes.cc", "gradients.cc", "launching.cc"]


def library_command():
    """How the build compiles the library, without its source and outputs."""
    for entry in json.loads((BUILD / "compile_commands.json").read_text()):
        if re.match(r"(librondo\.so\S*|librondo_parts\.a)\.p/", entry.get("output", "")):
            words = shlex.split(entry["command"])
            for flag, taken in ("-o", 2), ("-c", 2), ("-MF", 2), ("-MQ", 2), ("-MD", 1):
                if flag in words:
                    del words[words.index(flag):words.index(flag) + taken]
            return [word for word in words if not word.startswith("-flto") and word != entry["file"]], entry["directory"]
    raise AssertionError("compile_commands.json has no source of the library")


class Contraction(unittest.TestCase):
    def fused(self, name, more=()):
        command, folder = library_command()
        # As CXXFLAGS would, before the flags of the target.
        first = next(i for i, word in enumerate(command) if word.startswith("-"))
        command[first:first] = ["-mfma", "-mavx2"]
        result = subprocess.run([*command, "-O2", *more, "-S", "-o", "-", SOURCE / "grad" / name], cwd=folder, capture_output=True, text=True)
        self.assertEqual(result.returncode, 0, result.stderr)
        return FUSED.findall(result.stdout)

    def test_no_product_is_fused(self):
        for name in FILES:
            with self.subTest(file=name):
                self.assertEqual(self.fused(name), [])

    def test_the_compiler_could(self):
        """Where it may, it does: so the case above sees it."""
        self.assertNotEqual(self.fused("host_kernels.cc", ["-ffp-contract=fast"]), [])


if __name__ == "__main__":
    unittest.main(argv=[sys.argv[0], *sys.argv[3:]])
