// SPDX-License-Identifier: Apache-2.0
//
// A link over which nothing can be sent, for tests of what lies behind links.
#ifndef RONDO_TESTS_TRANSPORTS_NO_LINK_H
#define RONDO_TESTS_TRANSPORTS_NO_LINK_H

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>

#include "transports/transport.h"

namespace rondo::testing {

class NoLink final : public transports::Link {
 public:
  explicit NoLink(transports::Lane lane) : lane_(lane) {}
  int peer() const noexcept override { return 1; }
  transports::Lane lane() const noexcept override { return lane_; }
  transports::Send send(const transports::HeaderBytes&, std::span<const std::byte>,
                        std::uint64_t) override {
    return transports::Send::full;
  }
  std::string describe() const override { return {}; }

 private:
  transports::Lane lane_;
};

}  // namespace rondo::testing

#endif  // RONDO_TESTS_TRANSPORTS_NO_LINK_H
