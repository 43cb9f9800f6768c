// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <functional>
#include <memory>
#include <thread>

namespace fake {

// Runs the work of one stream for the executor. Under TSan it is a thread of its own, which takes
// turns with the executor, and TSan sees no order between the two: streams have none in CUDA.
// Otherwise the executor's thread runs the work itself. Only the executor uses it, quiet.
class Hand {
 public:
  Hand();
  ~Hand();
  Hand(const Hand&) = delete;
  Hand& operator=(const Hand&) = delete;

  // Returns when the function has. TSan sees what the function does. What it refers to must not be
  // on a stack.
  void run(std::function<void()> function);

 private:
  struct Turn;
  std::unique_ptr<Turn> turn_;  // null: no thread
  std::thread thread_;
};

}  // namespace fake
