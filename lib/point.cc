// SPDX-License-Identifier: Apache-2.0
#include "lib/point.h"

#include <fmt/format.h>

#include <algorithm>
#include <optional>

namespace rondo::lib {

// The buffers of one call of messages: all are on one GPU, or all in host memory. call and gpus
// outlive the object.
class MessageMemory {
 public:
  MessageMemory(const CheckedCall& call, const GpuLanes& gpus) noexcept
      : call_(call), gpus_(gpus) {}

  // Checks the buffer; refuses the call otherwise. name: that of the parameter, "in".
  void add(const Buffer& buffer, std::string_view name);
  const CheckedCall& call() const noexcept { return call_; }
  // Negative: the buffers are in host memory, or empty.
  int device() const noexcept { return device_.value_or(-1); }

 private:
  const CheckedCall& call_;
  const GpuLanes& gpus_;
  std::optional<int> device_;
};

void MessageMemory::add(const Buffer& b, std::string_view name) {
  call_.check_buffer(b, name);
  if (b.count == 0) return;
  const int device = std::max(b.device, -1);
  if (device_.value_or(device) != device)
    call_.refuse(
        fmt::format("{}.device is {}, but that of a buffer before it is {}: all buffers of "
                    "a call must be on one GPU, or all in host memory",
                    name, b.device, *device_));
  device_ = device;
  if (device >= 0) gpus_.check_buffer(call_, b, name);
}

namespace {

void check_message_options(const CheckedCall& call, const OpOptions& options) {
  call.check_options(options);
  if (options.scale) call.refuse("a scale factor applies to reductions only");
  if (options.input_scale) call.refuse("an input scale applies to reductions only");
}

point::PointTransfer transfer_of(bool sending, const Buffer& b, int peer, point::PointKey key) {
  return {sending, peer, key, b.type, b.count, static_cast<std::byte*>(b.data)};
}

}  // namespace

// call: its transfers and its shape.
Work MessageCalls::start(const MessageMemory& memory, point::PointCall&& call,
                         const OpOptions& options) {
  call.tag = options.tag;
  call.unattended = options.unattended;
  call.time_limit = starting_.time_limit(options);
  if (memory.device() < 0) return Work(starting_.engine.start(call));
  call.unattended = true;  // as CollectiveCalls::start_on_gpu()
  const auto stream = static_cast<device::StreamHandle>(options.stream);
  return name_call(memory.call(), [&] {
    const operation::DeviceCall device{
        starting_.gpus.transfers(memory.device(), starting_.gpu_needs), stream};
    device::refuse_capture(starting_.gpus.gpus()->gpu(memory.device()), stream,
                           "OpOptions::stream");
    return Work(starting_.engine.start(call, &device));
  });
}

Work MessageCalls::transfer(bool sending, const Buffer& buffer, int peer, std::uint32_t tag,
                            const OpOptions& options) {
  const CheckedCall call = named(sending ? "send" : "receive");
  MessageMemory memory(call, starting_.gpus);
  memory.add(buffer, sending ? "in" : "out");
  call.check_rank(peer, "the peer");
  check_message_options(call, options);
  const point::PointTransfer one = transfer_of(sending, buffer, peer, {tag, 0});
  return start(memory,
               {{&one, 1},
                {sending ? Collective::send : Collective::receive, false, peer, tag, 1,
                 buffer.count * size_of(buffer.type)}},
               options);
}

Work MessageCalls::receive_any(const Buffer& out, std::uint32_t tag, const OpOptions& options) {
  const CheckedCall call = named("receive_any");
  MessageMemory memory(call, starting_.gpus);
  memory.add(out, "out");
  check_message_options(call, options);
  const point::PointTransfer one = transfer_of(false, out, point::any_rank, {tag, 0});
  return start(
      memory,
      {{&one, 1},
       {Collective::receive, false, point::any_rank, tag, 1, out.count * size_of(out.type)}},
      options);
}

Work MessageCalls::batch(std::span<const Transfer> batch, const OpOptions& options) {
  const CheckedCall call = named("batch");
  check_message_options(call, options);
  MessageMemory memory(call, starting_.gpus);
  transfers_.clear();
  point::PointShape shape{Collective::send, true, 0, 0, batch.size(), 0};
  for (const Transfer& t : batch) {
    memory.add(t.buffer, "a transfer's buffer");
    call.check_rank(t.peer, "the peer of a transfer");
    if (t.kind != Transfer::Kind::send && t.kind != Transfer::Kind::receive)
      call.refuse("a transfer is neither a send nor a receive");
    shape.bytes += t.buffer.count * size_of(t.buffer.type);
    transfers_.push_back(transfer_of(t.kind == Transfer::Kind::send, t.buffer, t.peer, {t.tag, 0}));
  }
  return transfers_.empty() ? Work() : start(memory, {transfers_, shape}, options);
}

Work MessageCalls::all_to_all_v(const Buffer& in, std::span<const std::size_t> send_counts,
                                const Buffer& out, std::span<const std::size_t> receive_counts,
                                const OpOptions& options) {
  const CheckedCall call = named("all_to_all_v");
  MessageMemory memory(call, starting_.gpus);
  memory.add(in, "in");
  memory.add(out, "out");
  call.check_same_type(in, out);
  check_message_options(call, options);
  call.check_count(in, "in", call.check_counts(send_counts, in.type, "send counts"),
                   "the sum of the send counts");
  call.check_count(out, "out", call.check_counts(receive_counts, out.type, "receive counts"),
                   "the sum of the receive counts");
  if (overlap(in, out)) call.refuse("in and out overlap: in place is not possible");
  const std::size_t element = size_of(in.type);
  transfers_.clear();
  std::size_t sent = 0, received = 0;
  for (int peer = 0; peer < starting_.place.size; ++peer) {
    const std::size_t out_count = send_counts[static_cast<std::size_t>(peer)];
    const std::size_t in_count = receive_counts[static_cast<std::size_t>(peer)];
    const Buffer give{static_cast<std::byte*>(in.data) + sent * element, out_count, in.type};
    const Buffer take{static_cast<std::byte*>(out.data) + received * element, in_count, out.type};
    transfers_.push_back(transfer_of(true, give, peer, {0, 1}));
    transfers_.push_back(transfer_of(false, take, peer, {0, 1}));
    sent += out_count;
    received += in_count;
  }
  return start(
      memory,
      {transfers_,
       {Collective::all_to_all_v, false, 0, 0, transfers_.size(), (sent + received) * element}},
      options);
}

}  // namespace rondo::lib
