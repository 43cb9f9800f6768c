// SPDX-License-Identifier: Apache-2.0
//
// The list of parameters that ranks compare. The bytes, little endian: for each parameter
//   u32 bytes of the name, the name, u8 type, u32 dimensions, u64 for each dimension.
#pragma once

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

struct ListedParameter {
  std::string name;
  std::vector<std::uint64_t> shape;
  DType type = DType::f32;
  bool operator==(const ListedParameter&) const = default;
};

std::vector<ListedParameter> list_of(std::span<const Parameter> parameters);
std::vector<std::uint8_t> encode_list(std::span<const ListedParameter> list);
// Returns nothing for bytes that encode_list() would not write.
std::optional<std::vector<ListedParameter>> decode_list(std::span<const std::uint8_t> bytes);
// "f32 [10, 64]"
std::string describe(const ListedParameter& parameter);

// The first place at which two lists differ.
struct ListDifference {
  enum class Kind : std::uint8_t {
    none,
    differs,  // the same name, another type or shape
    missing,  // mine lacks what theirs has there
    extra,    // theirs lacks what mine has there
    order     // both lists have both parameters, at other places
  };
  Kind kind = Kind::none;
  std::uint64_t index = 0;
  std::string name, what;  // describe my parameter there; for `missing` theirs
};
ListDifference first_difference(std::span<const ListedParameter> theirs,
                                std::span<const ListedParameter> mine);

}  // namespace rondo::training
