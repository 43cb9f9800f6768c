// SPDX-License-Identifier: Apache-2.0
//
// The tcp address of a peer. An address that decodes must encode to the same bytes, and every
// endpoint must have a text and be a candidate for a connection.
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <span>

#include "transports/connect/address.h"

using namespace rondo;

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t bytes) {
  const auto input = std::as_bytes(std::span(data, bytes));
  const auto address = connect::decode_address(input);
  if (!address) return 0;
  const transports::Blob again = connect::encode(*address);
  if (again.size() != input.size() || !std::equal(again.begin(), again.end(), input.begin()))
    std::abort();
  for (const auto& endpoint : address->endpoints)
    if (connect::to_text(endpoint).empty()) std::abort();
  if (connect::candidates(*address, true, {}, {}).size() != address->endpoints.size()) std::abort();
  return 0;
}
