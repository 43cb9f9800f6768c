// SPDX-License-Identifier: Apache-2.0
#include "soak/footprint.h"

#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <iterator>

namespace rondo::testing {

Footprint Footprint::now() {
  Footprint footprint;
  std::size_t total = 0, pages = 0;
  std::ifstream("/proc/self/statm") >> total >> pages;
  footprint.resident_bytes = pages * static_cast<std::size_t>(::sysconf(_SC_PAGESIZE));
  const std::filesystem::directory_iterator descriptors("/proc/self/fd");
  footprint.descriptors =
      static_cast<std::size_t>(std::distance(begin(descriptors), end(descriptors)));
  std::ifstream maps("/proc/self/maps");
  footprint.maps = static_cast<std::size_t>(
      std::count(std::istreambuf_iterator<char>(maps), std::istreambuf_iterator<char>(), '\n'));
  return footprint;
}

std::string Footprint::describe() const {
  return std::to_string(resident_bytes / 1024) + " KiB resident, " + std::to_string(descriptors) +
         " descriptors, " + std::to_string(maps) + " maps";
}

std::string growth(const Footprint& before, const Footprint& after, const Footprint& allowed) {
  bool grown = after.descriptors > before.descriptors + allowed.descriptors;
#if !RONDO_SANITIZED
  grown |= after.resident_bytes > before.resident_bytes + allowed.resident_bytes;
  grown |= after.maps > before.maps + allowed.maps;
#endif
  return grown ? "from " + before.describe() + " to " + after.describe() : std::string();
}

}  // namespace rondo::testing
