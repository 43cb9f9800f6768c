// SPDX-License-Identifier: Apache-2.0
//
// Structs of the C API begin with their size, and new fields come at the end. So a caller that was
// compiled with another version is served: the fields that it lacks are not set, and those that
// this version does not know must be zero.
#pragma once

#include <fmt/format.h>

#include <algorithm>
#include <cstddef>
#include <cstring>
#include <span>

#include "lib/c/status.h"

namespace rondo::c {

// Throws Error(invalid_argument) for a size that no version has had. name: "call".
template <class Struct>
void require_size(const Struct* one, const char* name) {
  constexpr std::size_t least = 2 * sizeof(std::size_t), most = 4096;
  require(one, name);
  if (one->bytes >= least && one->bytes <= most) return;
  throw Error(Errc::invalid_argument,
              fmt::format("{0}.bytes is {1}: set it to sizeof(rondo_{0}), which is {2} in this "
                          "version",
                          name, one->bytes, sizeof(Struct)));
}

// Returns a copy of the caller's struct; what it lacks comes from `unset`. Throws
// Error(invalid_argument) for a size that cannot be, and for fields of a later version.
template <class Struct>
Struct read_struct(const Struct* from, const char* name, Struct unset = {}) {
  require_size(from, name);
  std::memcpy(&unset, from, std::min(from->bytes, sizeof(Struct)));
  const std::span<const std::byte> all(reinterpret_cast<const std::byte*>(from), from->bytes);
  if (from->bytes > sizeof(Struct) &&
      std::ranges::any_of(all.subspan(sizeof(Struct)),
                          [](std::byte b) { return b != std::byte{}; }))
    throw Error(Errc::invalid_argument,
                fmt::format("{}.bytes is {}, and a field that this version of Rondo does not know "
                            "is set: run the program with the library of its rondo/c.h",
                            name, from->bytes));
  return unset;
}

// Writes what the caller's struct has room for, and zeros to the fields of later versions.
template <class Struct>
void write_struct(const Struct& value, Struct* to, const char* name) {
  require_size(to, name);
  const std::size_t bytes = to->bytes;
  std::memset(reinterpret_cast<std::byte*>(to), 0, bytes);
  std::memcpy(reinterpret_cast<std::byte*>(to), &value, std::min(bytes, sizeof(Struct)));
  to->bytes = bytes;
}

}  // namespace rondo::c
