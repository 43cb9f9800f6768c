// SPDX-License-Identifier: Apache-2.0
//
// Headers of messages between two ranks. A header that decodes must stay the same when it is
// encoded and decoded again.
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <span>

#include "base/bytes.h"
#include "base/crc32c.h"
#include "collectives/point/frame.h"

using namespace rondo;

namespace {

bool same(const point::PointFrame& a, const point::PointFrame& b) {
  return a.kind == b.kind && a.type == b.type && a.key.tag == b.key.tag &&
         a.key.space == b.key.space && a.call == b.call && a.checksum == b.checksum &&
         a.message == b.message && a.count == b.count && a.returned == b.returned &&
         a.offset == b.offset && a.content == b.content;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  transports::HeaderBytes bytes{};
  std::copy_n(reinterpret_cast<const std::byte*>(data), std::min(size, bytes.size()),
              bytes.begin());
  // Half of the inputs get a correct magic and checksum, so that the other fields are decoded too.
  if (size != 0 && data[size - 1] % 2 == 0) {
    const transports::HeaderBytes right = point::encode(point::PointFrame{});
    std::copy_n(right.begin(), 4, bytes.begin());
    constexpr std::size_t crc_offset = transports::frame_header_bytes - 4;
    base::store_little(bytes.data() + crc_offset, base::crc32c(std::span(bytes).first(crc_offset)));
  }
  point::PointFrame frame, again;
  if (!point::decode(bytes, frame)) return 0;
  if (!point::decode(point::encode(frame), again) || !same(frame, again)) std::abort();
  return 0;
}
