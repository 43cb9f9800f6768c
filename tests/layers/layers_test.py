# SPDX-License-Identifier: Apache-2.0
"""Tests layers.py with made-up trees that have one violation each."""

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
            found, self.advice = layers.check_tree(root)
            return found

    def allowed(self, path, target):
        self.assertEqual(self.problems({path: f"#include {target}"}), [], f"{path} includes {target}")

    def forbidden(self, path, target, reason):
        found = self.problems({path: f"#include {target}"})
        self.assertEqual(len(found), 1, f"{path} includes {target}: {found}")
        self.assertTrue(found[0].startswith(f"{path}:2: "), found[0])
        self.assertIn(reason, found[0])

    def test_order(self):
        rooms = {"collectives": "collectives/plan"}  # nothing lies in collectives itself
        for here, left in enumerate(layers.ORDER[1:], 1):
            path = f"{rooms.get(left, left)}/y.cc"
            for there, right in enumerate(layers.ORDER[1:], 1):
                target = f'"{rooms.get(right, right)}/x.h"'
                if there <= here:
                    self.allowed(path, target)
                else:
                    self.forbidden(path, target, f"{left} may include")
            self.allowed(path, "<rondo/work.h>")
        for folder in ("tests", "bench", "tools", "grad"):
            self.forbidden("lib/y.cc", f'"{folder}/x.h"', "lib may include")

    def test_order_of_rooms(self):
        for folder, levels in layers.ROOMS.items():
            for here, left in levels.items():
                for there, right in levels.items():
                    path = f"{folder}/{here}/y.cc".replace("//", "/")
                    target = f'"{folder}/{there}/x.h"'.replace("//", "/")
                    if here == there or right < left:
                        self.allowed(path, target)
                    else:
                        self.forbidden(path, target, f"the order in {folder} is ")
        self.forbidden("lib/cellar/y.cc", '"lib/wire/stream.h"', "the rooms of lib are ")
        self.allowed("lib/state.cc", '"collectives/engine/engine.h"')

    def test_pairs(self):
        files = {"base/y/y.h": '#include "base/x.h"', "base/x.h": '#include "base/y/z.h"'}
        self.assertEqual(self.problems(files), ["base/y/y.h:2: base includes base/y too, at base/x.h:2"])

    def test_comments(self):
        for word, text in (("What", "// What comes next."), ("Of", "int a;  // Of the other rank"), ("The same", "  // The same for b"),
                           ("Who", "// Who waits?")):
            self.assertEqual(next(layers.check_comments("x.h", [text])), f'x.h:1: a comment begins with "{word}"; say what it is about')
        for lines in (["// Says", "// What follows is the second line."], ["int whatever;  // Often"]):
            self.assertEqual(list(layers.check_comments("x.h", lines)), [])

    def test_gpus(self):
        lines = ["#pragma once", "// Waits for a GPU."]
        self.assertEqual(list(layers.check_gpus("collectives/gpu/x.h", lines)), [])
        self.assertEqual(list(layers.check_gpus("collectives/operation/device_memory.h", lines)), [])
        self.assertEqual(next(layers.check_gpus("collectives/point/x.h", lines)),
                         "collectives/point/x.h:2: speaks of GPUs; they are the affair of collectives/gpu, behind operation/device_memory.h")

    def test_namespaces(self):
        def inside(name):
            return f"namespace {name} {{\nstruct Frame {{}};\n}}"
        for path, name in (("base/x.h", "rondo::base"), ("collectives/engine/x.h", "rondo::engine"), ("lib/x.h", "rondo::lib"),
                           ("lib/control/x.h", "rondo::control"), ("bn/layer/x.h", "rondo::layer"),
                           ("bn/layer/device/x.h", "rondo::layer"), ("transports/transport.h", "rondo::transports"),
                           ("transports/tcp/x.h", "rondo::tcp"), ("include/rondo/x.h", "rondo"), ("tests/x.h", "anything")):
            self.assertEqual(self.problems({path: inside(name)}), [], path)
        for path in ("base/x.h", "transports/tcp/x.h", "include/rondo/x.h"):
            found = self.problems({path: inside("rondo::engine")})
            self.assertEqual(len(found), 1, found)
            self.assertIn(f"{path}:2: namespace rondo::engine; this room has rondo", found[0])
            self.assertEqual(self.problems({path: "namespace rondo::engine {\nclass Operation;\n}"}), [])
        found = self.problems({"grad/x.cc": inside("rondo")})
        self.assertEqual(found, ["grad/x.cc:3: rondo::Frame is not public; define it in rondo::grad"])
        for public in ("class Work::State {};", "void f() { struct Frame {}; }", "namespace { struct Frame {}; }"):
            self.assertEqual(self.problems({"lib/x.cc": f"namespace rondo {{\n{public}\n}}"}), [], public)

    def test_public_headers(self):
        self.allowed("include/rondo/x.h", "<system_error>")
        self.allowed("include/rondo/x.h", "<rondo/error.h>")
        for target in ("<fmt/format.h>", "<unistd.h>", '"base/clock.h"', "<boost/any.hpp>"):
            self.forbidden("include/rondo/x.h", target, "public headers include only")

    def test_public_users(self):
        for folder in layers.PUBLIC_ONLY + layers.PUBLIC_AND_BASE:
            self.allowed(f"{folder}/x.cc", "<rondo/communicator.h>")
            own = f"{folder}/layer" if folder == "bn" else folder  # bn has rooms only
            self.allowed(f"{own}/x.cc", f'"{own}/y.h"')
            self.allowed(f"{folder}/x.cc", "<CLI/CLI.hpp>")
            self.forbidden(f"{folder}/x.cc", '"lib/connect.h"', "itself only")
        for folder in layers.PUBLIC_AND_BASE:
            self.allowed(f"{folder}/x.cc", '"base/clock.h"')
        for folder in layers.PUBLIC_ONLY:
            self.forbidden(f"{folder}/x.cc", '"base/clock.h"', "public headers <rondo/...> and itself only")

    def test_training_is_below_gradients(self):
        self.allowed("grad/x.cc", '"training/y.h"')
        self.allowed("training/x.cc", '"device/objects.h"')
        self.forbidden("training/x.cc", '"grad/y.h"', "itself only")
        self.forbidden("bn/x.cc", '"training/y.h"', "itself only")
        self.allowed("grad/x.cc", '"grad/device/y.h"')
        self.allowed("grad/device/x.cc", '"grad/device/y.h"')

    def test_functions_of_lib_for_rooms_above(self):
        for path in ("grad/x.cc", "bn/layer/x.h"):
            self.allowed(path, '"lib/inner.h"')
            self.forbidden(path, '"lib/state.h"', "<rondo/...>, base and itself only")
        self.forbidden("tools/x.cc", '"lib/inner.h"', "<rondo/...>, base and itself only")

    def test_tests_and_bench_may_include_all(self):
        for folder in layers.EVERYTHING:
            for target in ('"lib/connect.h"', '"transports/tcp/tcp.h"', '"catch.h"', "<boost/asio.hpp>", "<cuda.h>"):
                self.allowed(f"{folder}/deep/x.cc", target)

    def test_ceiling_of_devices(self):
        for target in ('"lib/device_stream.h"', '"transports/stream.h"'):
            self.allowed("tools/ceilings/device_ceiling.cc", target)
            self.forbidden("tools/bench/bench.cc", target, "<rondo/...>, base and itself only")
        self.forbidden("tools/ceilings/device_ceiling.cc", '"lib/connect.h"', "<rondo/...>, base and itself only")

    def test_asio(self):
        self.allowed("transports/connect/dial.cc", "<boost/asio/ip/tcp.hpp>")
        for path in ("base/clock.h", "transports/transport.h", "transports/tcp/link.cc", "lib/communicator.cc", "tools/main.cc"):
            self.forbidden(path, "<boost/asio/ip/tcp.hpp>", "Boost.Asio stays inside")

    def test_hwloc(self):
        self.allowed("tools/ranks/bind.cc", "<hwloc.h>")
        for path in ("tools/ranks/spawn.cc", "base/cores.cc", "lib/core_share.cc"):
            for target in ("<hwloc.h>", "<hwloc/bitmap.h>"):
                self.forbidden(path, target, "hwloc stays inside tools/ranks/bind.cc")

    def test_verbs(self):
        self.allowed("transports/rdma/queue.cc", "<infiniband/verbs.h>")
        for path in ("transports/tcp/tcp.cc", "lib/transports.cc"):
            self.forbidden(path, "<infiniband/verbs.h>", "verbs headers stay inside")

    def test_cuda(self):
        for path in ("device/driver_cuda.cc", "collectives/kernels/reduce.cu"):
            self.allowed(path, "<cuda.h>")
        for path in ("collectives/engine/engine.cc", "transports/cuda_ipc/a.cc", "grad/x.cc", "lib/a.cc"):
            self.forbidden(path, "<cuda_runtime.h>", "CUDA headers stay inside")

    def test_concrete_transports(self):
        self.allowed("lib/transports.cc", '"transports/tcp/tcp.h"')
        self.allowed("transports/tcp/link.cc", '"transports/tcp/tcp.h"')
        self.allowed("lib/connect.cc", '"transports/transport.h"')
        for path in ("lib/connect.cc", "collectives/engine/engine.cc", "transports/mem/mem.cc", "transports/choose.cc"):
            self.forbidden(path, '"transports/tcp/tcp.h"', "named in lib/transports.cc only")
        for shared in ("connect", "host"):
            self.allowed("transports/tcp/link.cc", f'"transports/{shared}/x.h"')
            self.allowed(f"transports/{shared}/y.cc", '"transports/transport.h"')
            self.forbidden(f"transports/{shared}/y.cc", '"transports/tcp/tcp.h"', "named in lib/transports.cc only")
        self.forbidden("transports/connect/y.cc", '"transports/host/x.h"', "transports/connect may include")

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
                self.twice({"include/rondo/a.h": f"namespace rondo {{\n{keyword} Frame {rest}\n}}",
                            "include/rondo/b.h": f"namespace rondo {{\n{keyword} Frame {rest}\n}}"}, "rondo::Frame")
        frame = "struct Frame {};"
        self.twice({"include/rondo/a.h": f"namespace rondo {{ {frame} }}",
                    "include/rondo/b.h": f"namespace rondo {{ struct RONDO_API alignas(sizeof(int)) [[nodiscard]] {frame[7:]} }}"},
                   "rondo::Frame")
        self.twice({"include/rondo/a.h": f"namespace rondo {{ namespace tcp {{ {frame} }} }}",
                    "include/rondo/b.h": f"namespace rondo::tcp {{ template <class T, typename = std::pair<T, int>> {frame} }}"},
                   "rondo::tcp::Frame")
        self.twice({"include/rondo/a.h": f"namespace rondo {{ class Link {{ {frame} }}; }}",
                    "include/rondo/b.h": "namespace rondo { struct Link::Frame {}; }"}, "rondo::Link::Frame")
        # Text before a definition does not hide it.
        for before in ("const char c = '{';", 'auto s = "{ \\" {";', "// {", "/* { \n { */", 'auto r = R"x( { ")x";',
                       "#define OPEN { \\\n {", "constexpr int n = 1'000'000;", "void f() { if (true) {} }",
                       "enum class A : int { a, b };", "int values[]{1, 2};"):
            self.twice({"include/rondo/a.h": f"namespace rondo {{\n{before}\n{frame} }}",
                        "include/rondo/b.h": f"namespace rondo {{ {frame} }}"}, "rondo::Frame")

    def test_types_that_differ(self):
        frame = "struct Frame {};"
        for other in ("struct Frame;", "namespace tcp { struct Frame {}; }", "namespace { struct Frame {}; }",
                      "class Link { struct Frame {}; };", "void f() { struct Frame {}; }", "// struct Frame {};",
                      "Frame frame() { return {}; }", "struct Frame frame{};", "template <class Frame> struct Other {};",
                      "struct Other : Frame {};", 'auto s = "struct Frame {};";', "template <> struct Frame<int> {};",
                      "struct Other { Frame f; } frame;", "friend class Frame; void g() {}"):
            self.assertEqual(self.problems({"include/rondo/a.h": f"namespace rondo {{ {frame} }}",
                                            "include/rondo/b.h": f"namespace rondo {{ {other} }}"}), [], other)
        # Two folders of tests may define a type, because each is a program. One folder may not, nor may
        # it define a type of the library.
        self.assertEqual(self.problems({"tests/a/a.h": frame, "tests/b/b.h": frame}), [])
        self.assertEqual(self.problems({"bench/a.h": frame, "bench/b.h": frame}), [])
        for other in ("tests/a/b.h", "tests/support/b.h"):
            self.assertIn("Frame is defined in", self.problems({"tests/a/a.h": frame, other: frame})[0])
        space = f"namespace rondo {{ {frame} }}"
        self.assertIn("Frame is defined in", self.problems({"include/rondo/a.h": space, "tests/a/a.h": space})[0])

    def test_unknown_folder(self):
        self.assertIn("no folder misc", self.problems({"misc/x.cc": ""})[0])

    def test_length_and_licence(self):
        self.assertEqual(self.problems({"base/x.h": "\n" * (layers.ADVISED_LINES - 2)}), [])
        self.assertEqual(self.advice, [])
        self.assertEqual(self.problems({"base/x.h": "\n" * (layers.ADVISED_LINES - 1)}), [])
        self.assertEqual(self.advice, ["base/x.h: 401 lines: is it one idea?"])
        with tempfile.TemporaryDirectory() as folder:
            root = pathlib.Path(folder)
            for name in ("base/x.h", "tools/x.py", "base/meson.build", ".ci/run", "build/x.h", ".git/x.h"):
                (root / name).parent.mkdir(exist_ok=True)
                (root / name).write_text("\n\n")
            found, _ = layers.check_tree(root)
            self.assertEqual([problem.split(":")[0] for problem in found],
                             [".ci/run", "base/meson.build", "base/x.h", "tools/x.py"])
            self.assertIn("no line 'SPDX", found[0])


if __name__ == "__main__":
    unittest.main()
