// SPDX-License-Identifier: Apache-2.0
//
// Control messages of a peer: the first two bytes are the type, the rest is the payload. A message
// that decodes must stay the same when it is encoded and decoded again. A status must also give a
// cause in words.
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <span>

#include "lib/control/late_ranks.h"
#include "lib/wire/messages.h"

using namespace rondo;

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t bytes) {
  if (bytes < 2) return 0;
  const auto payload = std::as_bytes(std::span(data, bytes)).subspan(2);
  const auto type = static_cast<std::uint16_t>(data[0] | data[1] << 8);
  const auto message = wire::decode(type, payload);
  if (!message) return 0;
  const auto frame = wire::encode(*message);
  if (frame.size() > wire::most_payload_bytes + 8) std::abort();
  const auto again = wire::decode(type, std::span(frame).subspan(8));
  if (!again || wire::encode(*again) != frame) std::abort();

  if (const auto* status = std::get_if<wire::StatusMessage>(&*message)) {
    const wire::DeadlineMessage deadline{Priority::bulk, status->query, 1, ""};
    const std::vector<control::Standing> standings(
        3, {control::Standing::State::answered, true, status->status});
    if (control::find_late_ranks(deadline, 1, standings).cause.empty()) std::abort();
  }
  return 0;
}
