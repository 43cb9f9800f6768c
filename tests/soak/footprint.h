// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <string>

namespace rondo::testing {

// What this process holds now.
struct Footprint {
  std::size_t resident_bytes = 0, descriptors = 0, maps = 0;
  static Footprint now();
  std::string describe() const;
};

// How far it has grown beyond what is allowed; empty when it has not.
std::string growth(const Footprint& before, const Footprint& after, const Footprint& allowed);

}  // namespace rondo::testing
