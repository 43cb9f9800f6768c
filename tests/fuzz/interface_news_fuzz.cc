// SPDX-License-Identifier: Apache-2.0
//
// The kernel's messages about interfaces, or bytes that look like them.
#include <cstdlib>

#include "transports/connect/interface_watch.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const auto bytes = std::as_bytes(std::span(data, size));
  const auto news = rondo::connect::decode_interface_news(bytes);
  // Each piece of news takes a header and a name, at least 32 bytes.
  if (news.size() > size / 32) std::abort();
  for (const auto& one : news)
    if (one.name.empty() || one.name.size() > 15) std::abort();
  return 0;
}
