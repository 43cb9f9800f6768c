// SPDX-License-Identifier: Apache-2.0
#include "tools/measure/row.h"

#include <fmt/format.h>

#include <array>

#include "base/text.h"

namespace rondo::tools {

std::string_view name_of(CeilingOf what) noexcept {
  constexpr std::array<std::string_view, 6> names{"none",  "sockets", "memcpy",
                                                  "cores", "device",  "gpu"};
  return names[static_cast<std::size_t>(what)];
}

bool exceeds_sockets(const Row& row) {
  constexpr double most = 1.5;
  return row.ceiling_of == CeilingOf::sockets && row.ceiling > 0 && row.busbw > most * row.ceiling;
}

double percent_of_ceiling(const Row& row) {
  if (row.ceiling <= 0 || row.bytes == 0 || row.time.p50_us <= 0 || exceeds_sockets(row)) return 0;
  const bool of_traffic = row.ceiling_of == CeilingOf::memcpy || row.ceiling_of == CeilingOf::gpu;
  const double rate = of_traffic ? row.traffic / row.time.p50_us / 1e3 : row.busbw;
  return 100 * rate / row.ceiling;
}

std::string op_name(const Row& row) {
  return row.operation.traits().reduces ? std::string(name_of(row.op)) : "none";
}

std::string describe_row(const Row& row) {
  return fmt::format("{} {} {}{}{}", name_of(row.operation), base::describe_bytes(row.bytes),
                     name_of(row.type),
                     row.operation.traits().reduces ? fmt::format(" {}", name_of(row.op)) : "",
                     !row.operation.has_in_place() ? ""
                     : row.in_place                ? ", in place"
                                                   : ", out of place");
}

}  // namespace rondo::tools
