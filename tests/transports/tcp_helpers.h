// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <functional>
#include <memory>
#include <vector>

#include "transports/tcp/tcp.h"

namespace rondo::testing {

inline constexpr std::uint64_t test_job = 0x1234567890abcdefu;

// Changes each rank's options before its transport is made.
using EditOptions = std::function<void(tcp::Options&)>;

// Makes and starts `size` tcp transports of one host.
inline std::vector<std::unique_ptr<transports::Transport>> tcp_transports(
    int size, const EditOptions& edit = {}) {
  std::vector<std::unique_ptr<transports::Transport>> transports;
  std::vector<transports::Blob> addresses;
  for (int rank = 0; rank < size; ++rank) {
    tcp::Options options;
    options.rank = rank;
    options.size = size;
    options.host = "one host";
    if (edit) edit(options);
    transports.push_back(tcp::make_tcp(options));
    addresses.push_back(transports.back()->address());
  }
  for (auto& transport : transports) transport->start(addresses, test_job);
  return transports;
}

}  // namespace rondo::testing
