// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <string>

namespace rondo::testing {

// The memory, descriptors and mappings that this process has now.
struct Footprint {
  std::size_t resident_bytes = 0, descriptors = 0, maps = 0;
  static Footprint now();
  std::string describe() const;
};

// Describes growth beyond what is allowed; empty when there is none. With a sanitizer only
// descriptors count.
std::string growth(const Footprint& before, const Footprint& after, const Footprint& allowed);

}  // namespace rondo::testing
