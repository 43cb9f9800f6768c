# SPDX-License-Identifier: Apache-2.0
"""The layer test tested: made-up trees with one violation each."""

import pathlib
import tempfile
import unittest

import layers


class LayersTest(unittest.TestCase):
    def problems(self, files):
        with tempfile.TemporaryDirectory() as folder:
            root = pathlib.Path(folder)
            for name, text in files.items():
                path = root / name
                path.parent.mkdir(parents=True, exist_ok=True)
                path.write_text(f"// {layers.SPDX}\n{text}\n")
            return layers.check_tree(root)

    def allowed(self, path, target):
        self.assertEqual(self.problems({path: f"#include {target}"}), [], f"{path} includes {target}")

    def forbidden(self, path, target, reason):
        found = self.problems({path: f"#include {target}"})
        self.assertEqual(len(found), 1, f"{path} includes {target}: {found}")
        self.assertTrue(found[0].startswith(f"{path}:2: "), found[0])
        self.assertIn(reason, found[0])

    def test_order(self):
        for here, left in enumerate(layers.ORDER[1:], 1):
            for there, right in enumerate(layers.ORDER[1:], 1):
                target = f'"{right}/x.h"'
                if there <= here:
                    self.allowed(f"{left}/y.cc", target)
                else:
                    self.forbidden(f"{left}/y.cc", target, f"{left} may include")
            self.allowed(f"{left}/y.cc", "<rondo/work.h>")
        for folder in ("tests", "bench", "tools", "grad"):
            self.forbidden("lib/y.cc", f'"{folder}/x.h"', "lib may include")

    def test_public_headers(self):
        self.allowed("include/rondo/x.h", "<system_error>")
        self.allowed("include/rondo/x.h", "<rondo/error.h>")
        for target in ("<fmt/format.h>", "<unistd.h>", '"base/clock.h"', "<boost/any.hpp>"):
            self.forbidden("include/rondo/x.h", target, "public headers include only")

    def test_public_users(self):
        for folder in layers.PUBLIC_ONLY:
            self.allowed(f"{folder}/x.cc", "<rondo/communicator.h>")
            self.allowed(f"{folder}/x.cc", f'"{folder}/y.h"')
            self.allowed(f"{folder}/x.cc", "<CLI/CLI.hpp>")
            self.forbidden(f"{folder}/x.cc", '"lib/connect.h"', "public headers <rondo/...> and itself only")
            self.forbidden(f"{folder}/x.cc", '"base/clock.h"', "public headers <rondo/...> and itself only")

    def test_tests_and_bench_may_include_all(self):
        for folder in layers.EVERYTHING:
            for target in ('"lib/connect.h"', '"transports/tcp/tcp.h"', '"catch.h"', "<boost/asio.hpp>", "<cuda.h>"):
                self.allowed(f"{folder}/deep/x.cc", target)

    def test_asio(self):
        for path in ("transports/tcp/link.cc", "lib/rendezvous_tcp.cc", "lib/control.cc"):
            self.allowed(path, "<boost/asio/ip/tcp.hpp>")
        for path in ("base/clock.h", "transports/transport.h", "transports/mem/mem.cc", "lib/communicator.cc", "tools/main.cc"):
            self.forbidden(path, "<boost/asio/ip/tcp.hpp>", "Boost.Asio stays inside")

    def test_verbs(self):
        self.allowed("transports/rdma/queue.cc", "<infiniband/verbs.h>")
        for path in ("transports/tcp/tcp.cc", "lib/transports.cc"):
            self.forbidden(path, "<infiniband/verbs.h>", "verbs headers stay inside")

    def test_cuda(self):
        for path in ("transports/cuda_ipc/a.cc", "collectives/kernels.cu", "lib/device.cc"):
            self.allowed(path, "<cuda_runtime.h>")
        for path in ("collectives/engine/engine.cc", "transports/tcp/tcp.cc", "grad/x.cc"):
            self.forbidden(path, "<cuda_runtime.h>", "CUDA headers stay inside")
        found = self.problems({"lib/a.cc": "#include <cuda.h>", "lib/b.cc": "#include <cuda.h>"})
        self.assertEqual(len(found), 1)
        self.assertIn("lib/a.cc, lib/b.cc", found[0])

    def test_concrete_transports(self):
        self.allowed("lib/transports.cc", '"transports/tcp/tcp.h"')
        self.allowed("transports/tcp/link.cc", '"transports/tcp/tcp.h"')
        self.allowed("lib/connect.cc", '"transports/transport.h"')
        for path in ("lib/connect.cc", "collectives/engine/engine.cc", "transports/mem/mem.cc", "transports/choose.cc"):
            self.forbidden(path, '"transports/tcp/tcp.h"', "named in lib/transports.cc only")

    def test_paths_from_the_root(self):
        self.forbidden("lib/connect.cc", '"connect.h"', "from the root")
        self.forbidden("lib/connect.cc", '"../base/clock.h"', "from the root")

    def test_includes_are_found_however_they_are_written(self):
        for line in ('#  include "lib/a.h"', '  #include"lib/a.h"', '#include "lib/a.h"  // why'):
            self.assertEqual(len(self.problems({"base/x.h": line})), 1, line)
        self.assertEqual(self.problems({"base/x.h": '// #include "lib/a.h"'}), [])

    def twice(self, files, name):
        found = self.problems(files)
        self.assertEqual(len(found), 1, found)
        self.assertIn(f": {name} is defined in {min(files)}:", found[0])

    def test_one_type_one_definition(self):
        for keyword in ("struct", "class", "union", "enum", "enum class"):
            for rest in ("{};", " final : public Base<int> {};", "\n{\n};"):
                self.twice({"base/a.h": f"namespace rondo {{\n{keyword} Frame {rest}\n}}",
                            "lib/b.h": f"namespace rondo {{\n{keyword} Frame {rest}\n}}"}, "rondo::Frame")
        frame = "struct Frame {};"
        self.twice({"grad/a.cc": f"namespace rondo {{ {frame} }}",
                    "tools/b.h": f"namespace rondo {{ struct RONDO_API alignas(sizeof(int)) [[nodiscard]] {frame[7:]} }}"},
                   "rondo::Frame")
        self.twice({"base/a.h": f"namespace rondo {{ namespace tcp {{ {frame} }} }}",
                    "lib/b.h": f"namespace rondo::tcp {{ template <class T, typename = std::pair<T, int>> {frame} }}"},
                   "rondo::tcp::Frame")
        self.twice({"base/a.h": f"namespace rondo {{ class Link {{ {frame} }}; }}",
                    "lib/b.h": "namespace rondo { struct Link::Frame {}; }"}, "rondo::Link::Frame")
        # What stands before a definition does not hide it.
        for before in ("const char c = '{';", 'auto s = "{ \\" {";', "// {", "/* { \n { */", 'auto r = R"x( { ")x";',
                       "#define OPEN { \\\n {", "constexpr int n = 1'000'000;", "void f() { if (true) {} }",
                       "enum class A : int { a, b };", "int values[]{1, 2};"):
            self.twice({"base/a.h": f"namespace rondo {{\n{before}\n{frame} }}",
                        "lib/b.h": f"namespace rondo {{ {frame} }}"}, "rondo::Frame")

    def test_types_that_differ(self):
        frame = "struct Frame {};"
        for other in ("struct Frame;", "namespace tcp { struct Frame {}; }", "namespace { struct Frame {}; }",
                      "class Link { struct Frame {}; };", "void f() { struct Frame {}; }", "// struct Frame {};",
                      "Frame frame() { return {}; }", "struct Frame frame{};", "template <class Frame> struct Other {};",
                      "struct Other : Frame {};", 'auto s = "struct Frame {};";', "template <> struct Frame<int> {};",
                      "struct Other { Frame f; } frame;", "friend class Frame; void g() {}"):
            self.assertEqual(self.problems({"base/a.h": f"namespace rondo {{ {frame} }}",
                                            "lib/b.h": f"namespace rondo {{ {other} }}"}), [], other)
        # Each test is a program of its own.
        for folder in layers.EVERYTHING:
            self.assertEqual(self.problems({f"{folder}/a.h": frame, f"{folder}/b.h": frame}), [])

    def test_unknown_folder(self):
        self.assertIn("no folder misc", self.problems({"misc/x.cc": ""})[0])

    def test_length_and_licence(self):
        self.assertEqual(self.problems({"base/x.h": "\n" * (layers.MOST_LINES - 2)}), [])
        self.assertIn("401 lines", self.problems({"base/x.h": "\n" * (layers.MOST_LINES - 1)})[0])
        with tempfile.TemporaryDirectory() as folder:
            root = pathlib.Path(folder)
            for name in ("base/x.h", "tools/x.py", "base/meson.build", ".ci/run", "build/x.h", ".git/x.h"):
                (root / name).parent.mkdir(exist_ok=True)
                (root / name).write_text("\n\n")
            found = layers.check_tree(root)
            self.assertEqual([problem.split(":")[0] for problem in found],
                             [".ci/run", "base/meson.build", "base/x.h", "tools/x.py"])
            self.assertIn("no line 'SPDX", found[0])


if __name__ == "__main__":
    unittest.main()
