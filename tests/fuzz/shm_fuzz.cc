// SPDX-License-Identifier: Apache-2.0
//
// The shm address of a peer on the same host. An address that decodes must encode to the same
// bytes.
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <span>

#include "transports/host/address.h"

using namespace rondo;

namespace {

template <class Encoded>
void must_be(std::span<const std::byte> input, const Encoded& again) {
  if (!std::ranges::equal(input, again)) std::abort();
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t bytes) {
  const auto input = std::as_bytes(std::span(data, bytes));
  if (const auto address = host::decode_address(input)) must_be(input, host::encode(*address));
  return 0;
}
