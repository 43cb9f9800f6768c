// SPDX-License-Identifier: Apache-2.0
//
// Headers of frames. A header that decodes must encode to the same bytes: this version accepts
// nothing that it would not write.
#include <algorithm>
#include <cstdlib>

#include "collectives/operation/frame.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  rondo::transports::HeaderBytes bytes{};
  std::copy_n(reinterpret_cast<const std::byte*>(data), std::min(size, bytes.size()),
              bytes.begin());
  // Half of the inputs get a correct magic and checksum, so that the other fields are decoded too.
  if (size != 0 && data[size - 1] % 2 == 0) {
    rondo::operation::Frame frame;
    frame.number = size;
    frame.signature.operation = rondo::Collective::all_reduce;
    frame.signature.type = rondo::DType::f32;
    const rondo::transports::HeaderBytes right = rondo::operation::encode(frame);
    // Half of these are sums of f32, which may carry a scale of the input.
    std::copy_n(right.begin(), data[0] % 2 == 0 ? 4 : 7, bytes.begin());
    rondo::operation::seal(bytes);
  }
  if (const auto frame = rondo::operation::decode(bytes)) {
    if (rondo::operation::encode(*frame) != bytes) std::abort();
    if (frame->input_scale != 1 &&
        !(rondo::schedules::sums_floats(frame->signature) &&
          rondo::schedules::is_input_scale(frame->signature.type, frame->input_scale)))
      std::abort();
    if (rondo::schedules::describe_call(frame->signature, frame->number, rondo::Priority::bulk)
            .empty())
      std::abort();
  }
  return 0;
}
