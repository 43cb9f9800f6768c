// SPDX-License-Identifier: Apache-2.0
//
// Calls that move messages between two ranks: checks their arguments and turns them into transfers.
#include <algorithm>

#include "lib/arguments.h"
#include "lib/message_memory.h"
#include "lib/state.h"

namespace rondo::lib {

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

Work CommunicatorState::start_transfers(const MessageMemory& memory, const point::PointShape& shape,
                                        const OpOptions& options) {
  refuse_child();
  point::PointCall call{transfers_, shape, {}, options.tag, options.unattended};
  call.time_limit = std::min(options.deadline.count() > 0 ? options.deadline : options_.deadline,
                             longest_deadline);
  if (memory.device() < 0) return Work(engine_->start(call));
  call.unattended = true;  // as in start_on_gpu()
  const auto stream = static_cast<device::StreamHandle>(options.stream);
  return name_call(memory.call(), [&] {
    point::GpuTransfers& transfers = gpu_lanes_.transfers(memory.device(), gpu_needs());
    device::refuse_capture(transfers.port().gpu(), stream, "OpOptions::stream");
    return Work(engine_->start(call, {transfers, stream}));
  });
}

Work CommunicatorState::start_transfer(bool sending, const Buffer& buffer, int peer,
                                       std::uint32_t tag, const OpOptions& options) {
  const CheckedCall call{sending ? "send" : "receive", place_.rank, place_.size};
  MessageMemory memory(call, gpu_lanes_);
  memory.add(buffer, sending ? "in" : "out");
  call.check_rank(peer, "the peer");
  check_message_options(call, options);
  transfers_.assign(1, transfer_of(sending, buffer, peer, {tag, 0}));
  return start_transfers(memory,
                         {sending ? Collective::send : Collective::receive, false, peer, tag, 1,
                          buffer.count * size_of(buffer.type)},
                         options);
}

Work CommunicatorState::start_receive_any(const Buffer& out, std::uint32_t tag,
                                          const OpOptions& options) {
  const CheckedCall call{"receive_any", place_.rank, place_.size};
  MessageMemory memory(call, gpu_lanes_);
  memory.add(out, "out");
  check_message_options(call, options);
  transfers_.assign(1, transfer_of(false, out, point::any_rank, {tag, 0}));
  return start_transfers(
      memory, {Collective::receive, false, point::any_rank, tag, 1, out.count * size_of(out.type)},
      options);
}

Work CommunicatorState::start_batch(std::span<const Transfer> batch, const OpOptions& options) {
  const CheckedCall call{"batch", place_.rank, place_.size};
  check_message_options(call, options);
  MessageMemory memory(call, gpu_lanes_);
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
  return transfers_.empty() ? Work() : start_transfers(memory, shape, options);
}

Work CommunicatorState::start_all_to_all_v(const Buffer& in,
                                           std::span<const std::size_t> send_counts,
                                           const Buffer& out,
                                           std::span<const std::size_t> receive_counts,
                                           const OpOptions& options) {
  const CheckedCall call{"all_to_all_v", place_.rank, place_.size};
  MessageMemory memory(call, gpu_lanes_);
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
  for (int peer = 0; peer < place_.size; ++peer) {
    const std::size_t out_count = send_counts[static_cast<std::size_t>(peer)];
    const std::size_t in_count = receive_counts[static_cast<std::size_t>(peer)];
    const Buffer give{static_cast<std::byte*>(in.data) + sent * element, out_count, in.type};
    const Buffer take{static_cast<std::byte*>(out.data) + received * element, in_count, out.type};
    transfers_.push_back(transfer_of(true, give, peer, {0, 1}));
    transfers_.push_back(transfer_of(false, take, peer, {0, 1}));
    sent += out_count;
    received += in_count;
  }
  return start_transfers(
      memory,
      {Collective::all_to_all_v, false, 0, 0, transfers_.size(), (sent + received) * element},
      options);
}

}  // namespace rondo::lib
