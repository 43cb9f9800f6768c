// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include <rondo/convert.h>
#include <rondo/error.h>

#include "base/copy.h"
#include "base/default_floats.h"
#include "collectives/kernels/convert.h"
#include "lib/arguments.h"

namespace rondo {

void convert(const void* in, DType in_type, void* out, DType out_type, std::size_t count) {
  const bool same = in_type == out_type && is_valid(in_type);
  const kernels::ConvertFunction function = kernels::find_convert(in_type, out_type);
  if (!same && function == nullptr)
    throw Error(Errc::invalid_argument,
                fmt::format("convert: no conversion from {} to {}: both must be floating-point "
                            "types and one of them f32, or both must be the same",
                            name_of(in_type), name_of(out_type)));
  if (count == 0 || (same && in == out)) return;
  if (lib::overlap({const_cast<void*>(in), count, in_type}, {out, count, out_type}))
    throw Error(Errc::invalid_argument,
                fmt::format("convert: in ({} {}) and out ({}) overlap: give each its own memory",
                            count, name_of(in_type), name_of(out_type)));
  const base::DefaultFloats floats;
  auto* const to = static_cast<std::byte*>(out);
  const auto* const from = static_cast<const std::byte*>(in);
  if (same)
    base::copy_bytes(to, from, count * size_of(in_type));
  else
    function(to, from, count);
}

}  // namespace rondo
