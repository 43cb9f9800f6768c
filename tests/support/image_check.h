// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "catch.h"
#include "skip.h"
#include "support/device_image.h"
#include "support/device_kernels.h"

namespace rondo::testing {

// Checks that the fat binary of a room has the kernels of host_kernels() whose names begin so, and
// no others. Its PTX must not flush or approximate; nor fuse (mul.f32 may be fused, mul.rn.f32
// not), unless the source asks for it. Returns how many kernels there are. image: null in a build
// without nvcc.
inline std::size_t check_image(const void* image, std::string_view prefix, bool fuses = false) {
  if (image == nullptr) skip_program("this build had no nvcc");
  const DeviceImage fat_binary(image);
  REQUIRE(fat_binary.is_fat_binary());
  const std::set<std::string> found = fat_binary.kernels();
  if (found.empty()) skip_program("this nvcc compresses all code");
  std::set<std::string> wanted;
  for (const HostKernel& kernel : host_kernels())
    if (kernel.name.starts_with(prefix)) wanted.emplace(kernel.name);
  CHECK(found == wanted);
  std::vector<std::string_view> inexact{"mul.f", "add.f", ".ftz", ".approx"};
  if (!fuses) inexact.emplace_back("fma.");
  for (const std::string_view part : inexact) {
    INFO(part);
    CHECK_FALSE((fat_binary.has_ptx() && fat_binary.contains(part)));
  }
  return wanted.size();
}

}  // namespace rondo::testing
