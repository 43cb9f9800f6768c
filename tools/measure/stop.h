// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <atomic>

namespace rondo::tools {

// Whether the user wants the run to end. Ranks find out together: see Iterations. Thread-safe.
class Stop {
 public:
  void ask() noexcept { asked_ = true; }
  bool asked() const noexcept { return asked_; }
  // All ranks have agreed to stop: what is left is to sum up.
  void agree() noexcept { agreed_ = true; }
  bool agreed() const noexcept { return agreed_; }

 private:
  std::atomic<bool> asked_ = false;
  std::atomic<bool> agreed_ = false;
};

}  // namespace rondo::tools
