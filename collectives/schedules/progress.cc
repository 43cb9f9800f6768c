// SPDX-License-Identifier: Apache-2.0
#include "collectives/schedules/progress.h"

#include <algorithm>

namespace rondo::schedules {

void Progress::begin(const Program& program, std::uint64_t segments, Room& room, Values values) {
  program_ = &program;
  segments_ = segments;
  window_ = std::min(program.window(), segments);
  values_ = values;
  base_ = done_ = opened_ = 0;
  const std::size_t slices = window_ * (program.slices() + 1);
  room.peers = std::max(room.peers, program.peers().size());
  room.slices = std::max(room.slices, slices);
  room.window = std::max<std::size_t>(room.window, window_);
  peers_.reserve(room.peers);
  slices_.reserve(room.slices);
  steps_left_.reserve(room.window);
  peers_.clear();
  for (const ProgramPeer& p : program.peers())
    peers_.push_back({FrameOrder(*p.receives, segments), FrameOrder(*p.sends, segments)});
  slices_.assign(slices, {});
  steps_left_.assign(window_, 0);
}

std::optional<FramePlace> Progress::later_receive(int peer, std::size_t ahead) const noexcept {
  FrameOrder order = this->peer(peer).receives;
  for (; ahead != 0 && !order.done(); --ahead) order.advance();
  if (order.done()) return std::nullopt;
  return FramePlace{order.segment(), order.frame(), program_->receive_step(peer, order.frame())};
}

std::size_t Progress::memory() const noexcept {
  const auto bytes = [](const auto& vector) { return vector.capacity() * sizeof vector[0]; };
  return sizeof *this + bytes(peers_) + bytes(slices_) + bytes(steps_left_);
}

}  // namespace rondo::schedules
