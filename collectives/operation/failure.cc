// SPDX-License-Identifier: Apache-2.0
#include "collectives/operation/failure.h"

#include <fmt/format.h>

namespace rondo::operation {

Failure left_failure(int rank, std::span<const std::uint64_t, lane_count> finished) {
  std::string text = fmt::format(
      "rank {} has left: it destroyed its communicator after operation #{}", rank, finished[0]);
  if (finished[1] != 0) text += fmt::format(" and urgent operation #{}", finished[1]);
  return {Errc::peer_left, std::move(text), rank, {rank}};
}

Failure cannot_go_on(int rank, const std::exception& error) {
  return {Errc::system, fmt::format("rank {} cannot go on: {}", rank, error.what()), -1, {rank}};
}

}  // namespace rondo::operation
