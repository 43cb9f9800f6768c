// SPDX-License-Identifier: Apache-2.0
//
// The order of frames on a link: a pure function that both ends compute. A link that carries `frames` frames for each segment in
// one direction sends frame m of segment s at key s * stride + m * lag, smaller keys first and, among equal
// keys, smaller m first; one of stride and lag is 1. So about `depth` segments are under way at once: a ring's second hop of one
// segment follows the first hops of the next `lag` segments, and never has to wait for the whole buffer.
#pragma once

#include <algorithm>
#include <cstdint>

namespace rondo {

class FrameOrder {
 public:
  FrameOrder() = default;
  FrameOrder(std::uint64_t segments, std::uint32_t frames, std::uint32_t depth) noexcept
      : segments_(segments),
        frames_(frames),
        stride_(std::max<std::uint64_t>(1, frames / std::max(1u, depth))),
        lag_(frames == 0 ? 1 : std::max<std::uint64_t>(1, depth / frames)),
        left_(segments * frames) {
    if (left_ != 0) settle();
  }

  bool done() const noexcept { return left_ == 0; }
  std::uint64_t segment() const noexcept { return (key_ - frame_ * lag_) / stride_; }
  std::uint32_t frame() const noexcept { return static_cast<std::uint32_t>(frame_); }
  void advance() noexcept {
    if (--left_ == 0) return;
    ++frame_;
    settle();
  }

  // How many segments apart two frames under way can be: a receiver must be able to hold this many segments at once.
  static std::uint64_t window(std::uint32_t frames, std::uint32_t depth) noexcept {
    if (frames == 0) return 1;
    const std::uint64_t stride = std::max<std::uint64_t>(1, frames / std::max(1u, depth));
    const std::uint64_t lag = std::max<std::uint64_t>(1, depth / frames);
    return (frames - 1) * lag / stride + 2;
  }

 private:
  bool valid() const noexcept {
    const std::uint64_t shift = frame_ * lag_;
    return shift <= key_ && (key_ - shift) % stride_ == 0 && (key_ - shift) / stride_ < segments_;
  }
  // Moves to the first valid (key, frame) at or after the present one.
  void settle() noexcept {
    for (;; ++key_, frame_ = 0) {
      for (; frame_ < frames_ && frame_ * lag_ <= key_; ++frame_)
        if (valid()) return;
    }
  }

  std::uint64_t segments_ = 0;
  std::uint64_t frames_ = 0;
  std::uint64_t stride_ = 1;
  std::uint64_t lag_ = 1;
  std::uint64_t left_ = 0;
  std::uint64_t key_ = 0;
  std::uint64_t frame_ = 0;
};

}  // namespace rondo
