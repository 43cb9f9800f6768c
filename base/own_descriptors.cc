// SPDX-License-Identifier: Apache-2.0
#include "base/own_descriptors.h"

#include <pthread.h>
#include <unistd.h>

#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>

namespace rondo::base {

namespace internal {
std::atomic<unsigned> forks{0};
}  // namespace internal

namespace {

constexpr std::size_t word_bits = 64,
                      words = (std::size_t{1} << 20) / word_bits;  // numbers beyond are left out

std::array<std::atomic<std::uint64_t>, words> table;
std::atomic<std::size_t> used_words{0};

// The process that the table is about. 0: the library is not loaded yet.
std::atomic<pid_t> owner{0};

// Runs in the child, where only this thread lives. It must not lock or allocate.
void close_all() noexcept {
  owner.store(::getpid());
  internal::forks.fetch_add(1);
  const std::size_t end = used_words.exchange(0);
  for (std::size_t word = 0; word < end; ++word)
    for (std::uint64_t bits = table[word].exchange(0); bits != 0; bits &= bits - 1)
      ::close(static_cast<int>(word * word_bits) + std::countr_zero(bits));
}

// Registers when the library is loaded. If there is no memory for that, children keep the
// descriptors.
[[maybe_unused]] const int registered = [] {
  owner.store(::getpid());
  return ::pthread_atfork(nullptr, nullptr, close_all);
}();

}  // namespace

void leave_parent() noexcept {
  const pid_t known = owner.load();
  if (known != 0 && known != ::getpid()) close_all();
}

void add_own_descriptor(int number) noexcept {
  const std::size_t word = static_cast<std::size_t>(number) / word_bits;
  if (number < 0 || word >= words) return;
  std::size_t end = used_words.load(std::memory_order_relaxed);
  while (end <= word && !used_words.compare_exchange_weak(end, word + 1)) {
  }
  table[word].fetch_or(std::uint64_t{1} << static_cast<std::size_t>(number) % word_bits);
}

void remove_own_descriptor(int number) noexcept {
  const std::size_t word = static_cast<std::size_t>(number) / word_bits;
  if (number < 0 || word >= words) return;
  table[word].fetch_and(~(std::uint64_t{1} << static_cast<std::size_t>(number) % word_bits));
}

}  // namespace rondo::base
