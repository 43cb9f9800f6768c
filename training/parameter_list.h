// SPDX-License-Identifier: Apache-2.0
//
// Ranks that compare models send each other lists of parameters, and find the same differences
// between them.
//
// The bytes of a list, little endian: for each parameter
//   u32 bytes of the name, the name, u8 type, u32 dimensions, u64 for each dimension.
#pragma once

#include <compare>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include <rondo/parameters.h>

namespace rondo::training {

// Ranks neither send nor accept longer lists.
inline constexpr std::size_t most_list_bytes = std::size_t{64} << 20;

std::vector<std::byte> encode_list(std::span<const Parameter> list);
// Returns nothing for bytes that encode_list() would not write.
std::optional<std::vector<Parameter>> decode_list(std::span<const std::byte> bytes);
// "f32 [10, 64]"
std::string describe(const Parameter& parameter);

// The first place at which a list differs from the one that most ranks have.
struct Difference {
  enum class Kind : std::uint8_t {
    none,
    differs,  // the same name, another type or shape
    missing,  // mine lacks what theirs has there
    extra,    // theirs lacks what mine has there
    order     // both lists have both parameters, at other places
  };
  std::uint64_t index = 0;  // of the parameter
  Kind kind = Kind::none;
  // Name and description of my parameter there; for `missing` of theirs.
  std::string name{}, what{};
  auto operator<=>(const Difference&) const = default;
};
Difference first_difference(std::span<const Parameter> theirs, std::span<const Parameter> mine);

// Describes how the list of `ranks` differs from `theirs`, the list of `others`: "parameter
// 'fc.weight' is f32 [10, 64] on ranks 0, 1, 3, but f32 [10, 32] on rank 2".
std::string describe(const Difference& difference, const std::vector<int>& ranks,
                     const std::vector<int>& others, std::span<const Parameter> theirs);

}  // namespace rondo::training
