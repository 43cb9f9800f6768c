// SPDX-License-Identifier: Apache-2.0
//
// Ranks that compare models send each other lists of parameters, and reports of differences. All
// ranks make the same error from the reports.
//
// The bytes of a list, little endian: for each parameter
//   u32 bytes of the name, the name, u8 type, u32 dimensions, u64 for each dimension.
// A report: u8 kind, u8 code, u64 index little endian, from byte 16 on the name and from byte 264
// on what it is, both ended by a zero.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include <rondo/error.h>
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

// The finding of a rank: the first place at which its list differs from the one that most ranks
// have, or a problem of its own.
struct Report {
  enum class Kind : std::uint8_t {
    none,
    differs,  // the same name, another type or shape
    missing,  // mine lacks what theirs has there
    extra,    // theirs lacks what mine has there
    order,    // both lists have both parameters, at other places
    problem   // `name` is its text
  };
  Kind kind = Kind::none;
  std::uint64_t index = 0;  // of the parameter
  Errc code = Errc::mismatch;
  // Name and description of my parameter there; for `missing` of theirs. The first 240 bytes of
  // each travel.
  std::string name, what;
};
Report first_difference(std::span<const ListedParameter> theirs,
                        std::span<const ListedParameter> mine);

inline constexpr std::size_t report_bytes = 512;
using ReportBytes = std::array<std::uint8_t, report_bytes>;
ReportBytes encode(const Report& report);
Report decode(const ReportBytes& bytes);  // accepts any bytes

// Throws the problem of the lowest rank that has one, and names all ranks with that problem.
// `reports` is in the order of ranks.
[[noreturn]] void throw_problem(const std::vector<Report>& reports);
// Throws Error(mismatch) with the first parameter at which a rank differs from `theirs`. `reports`
// is in the order of ranks.
[[noreturn]] void throw_difference(const std::vector<Report>& reports,
                                   std::span<const ListedParameter> theirs);

}  // namespace rondo::training
