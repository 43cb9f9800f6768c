// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <span>
#include <vector>

#include <rondo/communicator.h>

#include "lib/calls.h"

namespace rondo::lib {

class MessageMemory;

// Turns calls that move messages between two ranks into transfers, and starts them: see
// Communicator::send(). Thread-bound: one thread at a time starts messages. Throws Error as
// Communicator says.
class MessageCalls {
 public:
  explicit MessageCalls(const Starting& starting) : starting_(starting) {}

  Work transfer(bool sending, const Buffer& buffer, int peer, std::uint32_t tag,
                const OpOptions& options);
  Work receive_any(const Buffer& out, std::uint32_t tag, const OpOptions& options);
  Work batch(std::span<const Transfer> batch, const OpOptions& options);
  Work all_to_all_v(const Buffer& in, std::span<const std::size_t> send_counts, const Buffer& out,
                    std::span<const std::size_t> receive_counts, const OpOptions& options);

 private:
  CheckedCall named(std::string_view name) const noexcept {
    return {name, starting_.place.rank, starting_.place.size};
  }
  Work start(const MessageMemory& memory, point::PointCall&& call, const OpOptions& options);

  const Starting starting_;
  std::vector<point::PointTransfer> transfers_;  // of the call that is starting, if it has many
};

}  // namespace rondo::lib
