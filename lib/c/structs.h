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
#include <string>

#include "lib/c/status.h"

namespace rondo::c {

inline constexpr std::size_t most_struct_bytes = 4096;  // more is no size of a later version

// The size that the first version of a struct had.
template <class Struct>
inline constexpr std::size_t first_bytes = sizeof(Struct);
template <>
inline constexpr std::size_t first_bytes<rondo_options> = offsetof(rondo_options, rdma_devices);

// Throws Error(invalid_argument) for a size that no version has. name: "call"; remedy: what the
// caller does to set it.
template <class Struct>
void check_bytes(std::size_t bytes, const char* name, const std::string& remedy) {
  if (bytes == first_bytes<Struct> || (bytes >= sizeof(Struct) && bytes <= most_struct_bytes))
    return;
  throw Error(Errc::invalid_argument, fmt::format("{}.bytes is {}: {}", name, bytes, remedy));
}

// type: "rondo_call".
template <class Struct>
std::string set_bytes(const char* type) {
  return fmt::format("set it to sizeof({}), which is {} in this version", type, sizeof(Struct));
}

// Returns a copy of the caller's struct; what it lacks comes from `unset`. Throws
// Error(invalid_argument) for a size that cannot be, and for fields of a later version.
template <class Struct>
Struct read_struct(const Struct* from, const char* name, const std::string& remedy,
                   Struct unset = {}) {
  require(from, name);
  check_bytes<Struct>(from->bytes, name, remedy);
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

// Writes the struct, or as much of it as a caller of the first version has room for. Fields of
// later versions stay as they are: `bytes` says afterwards what was written.
template <class Struct>
void write_struct(const Struct& value, Struct* to, const char* name, const std::string& remedy) {
  require(to, name);
  check_bytes<Struct>(to->bytes, name, remedy);
  const std::size_t bytes = std::min(to->bytes, sizeof(Struct));
  std::memcpy(reinterpret_cast<std::byte*>(to), &value, bytes);
  to->bytes = bytes;
}

}  // namespace rondo::c
