// SPDX-License-Identifier: Apache-2.0
//
// An importer of registered memory first writes to its own table that it is opening the export, and
// then looks once more whether there is such an export. The owner first takes the export out of its
// table, and then looks who has it open. Both make a full fence in between, so one of them sees the
// other.
#include "transports/cuda_ipc/own_table.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <tuple>

#include "base/futex.h"
#include "transports/cuda_ipc/process_memory.h"

namespace rondo::cuda_ipc {

namespace {

// A sleeper may miss a call that only wakes, so the owner of memory calls again.
constexpr milliseconds call_again{2};

template <class Words, class Bytes>
void store_words(Words& words, const Bytes& bytes) noexcept {
  static_assert(sizeof(Bytes) == std::tuple_size_v<Words> * sizeof(std::uint64_t));
  std::array<std::uint64_t, std::tuple_size_v<Words>> values;
  std::memcpy(values.data(), &bytes, sizeof bytes);
  for (std::size_t i = 0; i < values.size(); ++i)
    words[i].store(values[i], std::memory_order_relaxed);
}

}  // namespace

OwnTable::OwnTable(const transports::Windows& windows, const host::DescriptorPassing& passing,
                   int rank)
    : passing_(passing), ranks_(windows.ranks()) {
  place_ = static_cast<std::size_t>(std::ranges::lower_bound(ranks_, rank) - ranks_.begin());
  for (const int each : ranks_) tables_.push_back(&table_in(windows.area(each)));
  tables_[place_]->identity.store(random_word(), std::memory_order_release);
}

OwnTable::Place OwnTable::show(const Shown& shown) noexcept {
  Table& table = *tables_[place_];
  const auto entry = std::ranges::find_if(table.exports, [](const ExportEntry& e) {
    return e.generation.load(std::memory_order_relaxed) == 0;
  });
  if (entry == table.exports.end()) return {};
  last_generation_ = last_generation_ % (only_open - 1) + 1;
  entry->bytes.store(shown.bytes, std::memory_order_relaxed);
  store_words(entry->gpu, shown.gpu);
  store_words(entry->handle, shown.handle);
  entry->name.store(shown.name, std::memory_order_relaxed);
  entry->generation.store(last_generation_, std::memory_order_release);
  if (shown.name != 0) table.registrations.fetch_add(1, std::memory_order_release);
  return {static_cast<std::uint32_t>(entry - table.exports.begin()), last_generation_};
}

void OwnTable::withdraw(const Place& place, bool unsettled) noexcept {
  Table& table = *tables_[place_];
  if (unsettled) table.unsettled.store(1, std::memory_order_relaxed);
  table.exports[place.slot].generation.store(0, std::memory_order_release);
  std::atomic_thread_fence(std::memory_order_seq_cst);
}

bool OwnTable::is_everywhere(const Place& place) const noexcept {
  for (std::size_t other = 0; other < tables_.size(); ++other)
    if (other != place_ && tables_[other]->mapped[place_][place.slot].load(
                               std::memory_order_acquire) != place.generation)
      return false;
  return true;
}

std::uint64_t OwnTable::await_released(const Place& place, base::TimePoint until) const noexcept {
  std::uint64_t holders = 0;
  for (std::size_t other = 0; other < tables_.size(); ++other) {
    if (other == place_) continue;
    const base::WakeWord& word = tables_[other]->mapped[place_][place.slot];
    for (;;) {
      const std::uint32_t state = word.load(std::memory_order_acquire);
      if ((state & ~only_open) != place.generation || passing_.has_died(ranks_[other])) break;
      base::wake_sleepers(tables_[other]->news);
      if (base::Clock::now() >= std::min(until, waits_end_.load())) {
        holders |= std::uint64_t{1} << other;
        break;
      }
      base::sleep_on(word, state, call_again);
    }
  }
  return holders;
}

}  // namespace rondo::cuda_ipc
