// SPDX-License-Identifier: Apache-2.0
//
// Records which links of one lane are lost, and decides when a loss ends the communicator. A loss
// matters only to an operation that needs the link.
//
// A link that broke counts at once. A peer that closed its link in order may have left in order;
// rank 0 then says so over the control plane. So that loss counts only leaving_timeout after an
// operation first needs the link. What a peer sent before it left may still be read here.
//
// Threads: thread-bound to its owner. It takes no lock and reads no clock.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <system_error>
#include <vector>

#include "base/clock.h"
#include "collectives/operation/failure.h"
#include "transports/transport.h"

namespace rondo::operation {

class Losses {
 public:
  static constexpr milliseconds leaving_timeout{200};
  // How long to wait for what a peer sent before it left, on a link that has not been seen here.
  static constexpr milliseconds unseen_time{2000};
  // How long to wait for the message that a peer has left, if an operation could do without it.
  static constexpr milliseconds patient_time{2000};

  struct Need {
    bool sends = false;  // something is still to be sent to the peer
    bool linked = true;  // the link has been seen here
    // Another peer can take its place. Then the operation goes on if the peer has left, even if the
    // link broke before that message came. A peer that has died is reported by the control plane
    // long before patient_time.
    bool replaceable = false;
  };

  Losses(int rank, int size);

  // "rank 0 lost rank 1 at 10.0.0.7:41022: connection reset by peer". Without a link the address is
  // left out. It blames the peer, unless the code is authentication.
  Failure failure(Errc code, int peer, const transports::Link* link, std::string_view what) const;
  // in_order: the peer closed the link between two frames.
  void lost(const transports::Link& link, std::error_code code, std::string_view what,
            bool in_order, base::TimePoint now);
  // The peer has destroyed its communicator in order.
  void left(int peer, base::TimePoint now);

  // Ranks that are lost or have left.
  const std::vector<int>& peers() const noexcept { return peers_; }

  // To be called for one of peers() when an operation needs that peer. Returns the failure once the
  // loss counts. Until then next_check() says when to call again, if ever.
  std::optional<Failure> needed(int peer, const Need& need, base::TimePoint now);
  base::TimePoint next_check() const noexcept { return next_check_; }
  // Forgets next_check(). The caller then calls needed() again for every peer that is needed.
  void begin_check() noexcept { next_check_ = base::TimePoint::max(); }

 private:
  struct Loss {
    bool lost = false, in_order = false;
    Failure failure;
    base::TimePoint lost_at{};
    std::optional<base::TimePoint> needed_at;  // when an operation first missed the peer
    std::optional<base::TimePoint> left_at;
  };

  Loss& loss(int peer);
  std::optional<Failure> wait_until(base::TimePoint limit, base::TimePoint now, Failure failure);

  const int rank_;
  std::vector<std::unique_ptr<Loss>> losses_;  // by rank, made when first needed
  std::vector<int> peers_;
  base::TimePoint next_check_ = base::TimePoint::max();
};

}  // namespace rondo::operation
