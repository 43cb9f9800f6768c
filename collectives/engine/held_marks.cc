// SPDX-License-Identifier: Apache-2.0
#include "collectives/engine/held_marks.h"

#include <algorithm>
#include <cstddef>

#include "collectives/point/gpu_transfers.h"

namespace rondo::engine {

using point::MessageOperation;

void HeldMarks::add(MessageOperation& message) noexcept {
  message.on_gpu.next_on_stream = nullptr;
  const auto stream = std::ranges::find_if(streams_, [&](const Stream& each) {
    const MessageOperation::OnGpu& other = each.first->on_gpu;
    return other.transfers == message.on_gpu.transfers &&
           other.mark.stream == message.on_gpu.mark.stream;
  });
  if (stream == streams_.end())
    streams_.push_back({&message, &message});
  else
    stream->last = stream->last->on_gpu.next_on_stream = &message;
}

// Takes the messages off whose marks have been reached. Throws before it takes one that has failed.
bool HeldMarks::take_reached(Stream& stream) {
  const MessageOperation* const before = stream.first;
  operation::GpuPort& port = before->on_gpu.transfers->port();
  const device::Current current(port.gpu());
  while (stream.first != nullptr && port.reached(stream.first->on_gpu.mark)) {
    port.give_back(stream.first->on_gpu.mark);
    stream.first = stream.first->on_gpu.next_on_stream;
  }
  return stream.first != before;
}

bool HeldMarks::look() {
  bool any = false;
  for (std::size_t i = 0; i < streams_.size();) {
    any |= take_reached(streams_[i]);
    if (streams_[i].first != nullptr) {
      ++i;
    } else {
      streams_[i] = streams_.back();
      streams_.pop_back();
    }
  }
  return any;
}

bool HeldMarks::prepare_sleep() {
  bool news = false;
  for (const Stream& stream : streams_) {
    operation::GpuPort& port = stream.first->on_gpu.transfers->port();
    const device::Current current(port.gpu());
    port.watch(stream.first->on_gpu.mark);
    news |= port.has_news(stream.first->on_gpu.mark);
  }
  return !news;
}

}  // namespace rondo::engine
