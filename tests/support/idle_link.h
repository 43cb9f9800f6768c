// SPDX-License-Identifier: Apache-2.0
//
// A link that a test plays: nothing is sent over it unless a class of the test does so.
#pragma once

#include <span>
#include <string>
#include <utility>

#include "transports/transport.h"

namespace rondo::testing {

class IdleLink : public transports::Link {
 public:
  // sink: for what the test hands over; null where nothing comes.
  explicit IdleLink(int peer = 1, transports::Lane lane = transports::Lane::bulk,
                    transports::Sink* sink = nullptr, std::string name = "the played rank")
      : Link(peer, lane, sinks_, std::move(name)), sinks_{sink, sink, sink} {}
  transports::Send send(const transports::HeaderBytes&, std::span<const std::byte>) override {
    return transports::Send::full;
  }

 private:
  const transports::Sinks sinks_;
};

}  // namespace rondo::testing
