// SPDX-License-Identifier: Apache-2.0
//
// Bytes from anyone who connects: hello, challenge, proof and verdict. Also the text of an
// announcement and of a rendezvous.
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <string_view>

#include <rondo/error.h>

#include "base/handshake.h"
#include "lib/rendezvous/announcement.h"
#include "lib/settings/url.h"

using namespace rondo;

namespace {

template <std::size_t size>
std::array<std::byte, size> first_bytes(const std::uint8_t* data, std::size_t bytes) {
  std::array<std::byte, size> array{};
  std::transform(data, data + std::min(bytes, size), array.begin(),
                 [](std::uint8_t byte) { return std::byte{byte}; });
  return array;
}

template <class Call>
void may_refuse(Call call) {
  try {
    call();
  } catch (const Error&) {
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t bytes) {
  const auto hello = first_bytes<base::hello_bytes>(data, bytes);
  const auto proof = first_bytes<base::proof_bytes>(data, bytes);
  may_refuse([&] {
    base::Acceptor acceptor(0, "secret");
    acceptor.challenge(hello);
    // No input can be a proof, because the nonce is new each time.
    if (acceptor.proves(proof)) std::abort();
  });
  may_refuse([&] {
    base::Initiator initiator({}, 0, "secret");
    initiator.answer(first_bytes<base::challenge_bytes>(data, bytes));
    std::abort();
  });
  may_refuse([&] {
    base::explain(base::Initiator::read_verdict(first_bytes<base::verdict_bytes>(data, bytes)));
  });

  const std::string_view text(reinterpret_cast<const char*>(data), bytes);
  if (const auto announcement = rendezvous::parse_announcement(text)) {
    const auto again =
        rendezvous::parse_announcement(rendezvous::write_announcement(*announcement));
    if (!again || again->job != announcement->job || again->addresses != announcement->addresses)
      std::abort();
  }
  may_refuse([&] { settings::parse_rendezvous(text, "fuzz"); });
  return 0;
}
