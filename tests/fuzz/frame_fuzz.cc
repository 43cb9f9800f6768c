// SPDX-License-Identifier: Apache-2.0
//
// Headers of frames. A header that decodes must encode to the same bytes: this version accepts
// nothing that it would not write.
#include <algorithm>
#include <cstdlib>

#include "collectives/engine/frame.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  rondo::transports::HeaderBytes bytes{};
  std::copy_n(reinterpret_cast<const std::byte*>(data), std::min(size, bytes.size()),
              bytes.begin());
  // Half of the inputs get a correct magic and checksum, so that the other fields are decoded too.
  if (size != 0 && data[size - 1] % 2 == 0) {
    rondo::engine::Frame frame;
    frame.number = size;
    const rondo::transports::HeaderBytes right = rondo::engine::encode(frame);
    std::copy_n(right.begin(), 4, bytes.begin());
    rondo::engine::seal(bytes);
  }
  if (const auto frame = rondo::engine::decode(bytes)) {
    if (rondo::engine::encode(*frame) != bytes) std::abort();
    if (rondo::schedules::describe_call(frame->signature, frame->number, rondo::Priority::bulk)
            .empty())
      std::abort();
  }
  return 0;
}
