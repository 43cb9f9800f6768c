// SPDX-License-Identifier: Apache-2.0
#include "hand.h"

#include <thread>

#include "base/futex.h"
#include "call.h"
#include "quiet.h"

namespace fake {
namespace {

using rondo::base::WakeWord;

// Waits until the word is odd, or even.
void wait_for(const WakeWord& word, unsigned odd) {
  constexpr std::chrono::seconds often{1};
  for (auto seen = word.load(); seen % 2 != odd; seen = word.load())
    rondo::base::sleep_on(word, seen, often);
}

}  // namespace

// The word is odd while the thread has the turn.
struct Hand::Turn {
  WakeWord word{0};
  std::function<void()> function;  // empty: the thread ends
};

Hand::Hand() {
  if (AnnotateIgnoreSyncBegin == nullptr) return;
  turn_ = std::make_unique<Turn>();
  thread_ = std::thread([turn = turn_.get()] {
    begin_quiet();
    on_executor() = true;
    for (;;) {
      wait_for(turn->word, 1);
      if (turn->function == nullptr) break;
      {
        const Seen seen;
        turn->function();
      }
      turn->function = nullptr;
      rondo::base::wake_all(turn->word);
    }
    end_quiet();
  });
}

Hand::~Hand() {
  if (turn_ == nullptr) return;
  rondo::base::wake_all(turn_->word);
  thread_.join();
}

void Hand::run(std::function<void()> function) {
  if (turn_ == nullptr) return function();
  turn_->function = std::move(function);
  rondo::base::wake_all(turn_->word);
  wait_for(turn_->word, 0);
}

}  // namespace fake
