// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <poll.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <system_error>

#include <rondo/error.h>

#include "base/event.h"
#include "base/futex.h"

namespace rondo::operation {

// Descriptors to sleep on. Those that do not fit are left out: the driver notices them only when it
// wakes for another reason, after a second at most.
class WakeDescriptors {
 public:
  void add(int descriptor) noexcept {
    if (count_ < polled_.size()) polled_[count_++] = {descriptor, POLLIN, 0};
  }
  // True when the first one is readable.
  bool wait(int timeout) noexcept {
    ::poll(polled_.data(), count_, timeout);
    return polled_[0].revents != 0;
  }

 private:
  std::array<pollfd, 8> polled_;
  std::size_t count_ = 0;
};

// Wakes the drivers of an engine that sleep. Where the only transport has a word to sleep on
// (WakeSource::word), that word is the bell and the engine needs no descriptor. Else it is an
// event, which is polled beside the descriptors of the transports. Thread-safe.
class Bell {
 public:
  // word: of the transport, null without one. Throws Error(system).
  explicit Bell(base::WakeWord* word) : word_(word) {
    if (word_ != nullptr) return;
    if (!event_.emplace())
      throw Error(Errc::system, "eventfd: " + std::generic_category().message(errno));
  }
  void ring() noexcept {
    if (word_ != nullptr) return base::wake_all(*word_);
    event_->set();
  }
  // A sleeper passes this to sleep(). It reads this before it looks for work for the last time.
  std::uint32_t seen() const noexcept { return word_ != nullptr ? word_->load() : 0; }
  // Adds the event to what is polled.
  void add_to(WakeDescriptors& descriptors) const noexcept {
    if (word_ == nullptr) descriptors.add(event_->descriptor());
  }
  // Whether nobody has rung since seen() gave this value. False where that cannot be known.
  bool is_silent_since(std::uint32_t seen) const noexcept {
    return word_ != nullptr && word_->load() == seen;
  }
  // Sleeps for this many milliseconds at most, until ring(), or until a transport wakes this rank.
  // True when the event has to be cleared.
  bool sleep(WakeDescriptors& descriptors, std::uint32_t seen, int timeout) const noexcept {
    if (word_ == nullptr) return descriptors.wait(timeout);
    if (timeout < 0 || timeout > longest_on_word.count())
      timeout = static_cast<int>(longest_on_word.count());
    base::sleep_on(*word_, seen, milliseconds{timeout});
    return false;
  }
  void clear() noexcept { event_->clear(); }

 private:
  // The end of a peer does not change the word, so the transport must look now and then.
  static constexpr milliseconds longest_on_word{100};

  base::WakeWord* const word_;
  std::optional<base::Event> event_;  // without a word
};

}  // namespace rondo::operation
