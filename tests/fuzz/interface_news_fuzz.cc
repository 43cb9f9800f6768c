// SPDX-License-Identifier: Apache-2.0
//
// What the kernel says of interfaces, or bytes that look like it.
#include <cstdlib>

#include "transports/connect/interface_watch.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const auto bytes = std::as_bytes(std::span(data, size));
  const auto news = rondo::connect::decode_interface_news(bytes);
  // Each has taken a header and a name.
  if (news.size() > size / 32) std::abort();
  for (const auto& one : news)
    if (one.name.empty() || one.name.size() > 15) std::abort();
  return 0;
}
