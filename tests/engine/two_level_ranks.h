// SPDX-License-Identifier: Apache-2.0
//
// What the tests of two levels share: ranks on several hosts, with windows for those beside them.
#pragma once

#include <chrono>
#include <cstddef>
#include <functional>
#include <latch>
#include <string>
#include <vector>

#include "catch.h"
#include "support/ranks.h"

namespace rondo::testing {

// Where the buffers of the ranks lie; mixed: those of every other rank in windows.
enum class Where { elsewhere, windows, mixed };

inline bool in_window(Where where, int rank) noexcept {
  return where == Where::windows || (where == Where::mixed && rank % 2 == 0);
}

// hosts: by rank. segment_bytes 0: as the planner wants it.
inline Setup setup_of(const std::vector<int>& hosts, std::size_t segment_bytes = 0) {
  Setup setup;
  setup.size = static_cast<int>(hosts.size());
  setup.hosts = hosts;
  setup.faults.windows = true;
  setup.options.algorithm = "two_level";
  setup.options.segment_bytes = segment_bytes;
  setup.options.depth = segment_bytes == 0 ? 0 : 3;
  return setup;
}

// Elements of f32, in a window or not.
class Floats {
 public:
  Floats(Communicator& communicator, bool window, std::size_t count) : count_(count), own_(count) {
    if (window && count != 0) window_ = communicator.allocate(count * sizeof(float));
  }
  float* data() { return window_.data() ? static_cast<float*>(window_.data()) : own_.data(); }
  Buffer buffer() { return buffer(0, count_); }
  Buffer buffer(std::size_t offset, std::size_t count) {
    return {data() + offset, count, DType::f32};
  }

 private:
  std::size_t count_;
  std::vector<float> own_;
  Memory window_;
};

// Ranks 0 and 1 on one host, 2 and 3 on another, and rank 1 never calls. Checks that the others
// give up at their deadlines and name it.
inline void check_that_a_late_rank_is_named(
    const std::function<void(Communicator&, const OpOptions&)>& call) {
  std::latch failed(3);
  std::vector<std::string> messages(4);
  CHECK_NOTHROW(run_communicators(setup_of({0, 0, 1, 1}), "late", [&](Communicator& c, int rank) {
    if (rank == 1) return failed.wait();
    OpOptions options;
    options.deadline = std::chrono::milliseconds{300};
    try {
      call(c, options);
    } catch (const Error& error) {
      messages[static_cast<std::size_t>(rank)] = error.what();
    }
    failed.count_down();
  }));
  for (const int rank : {0, 2, 3}) {
    const std::string& message = messages[static_cast<std::size_t>(rank)];
    INFO(message);
    CHECK(message.find("rank 1") != std::string::npos);
  }
}

}  // namespace rondo::testing
