// SPDX-License-Identifier: Apache-2.0
#include "transports/mem/windows.h"

#include <sys/mman.h>

#include <cerrno>
#include <string>
#include <system_error>
#include <utility>

#include <rondo/error.h>

namespace rondo::mem {

ZeroPages::ZeroPages(std::size_t bytes) {
  void* const data =
      ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (data == MAP_FAILED)
    throw Error(Errc::system, "mmap of " + std::to_string(bytes) +
                                  " bytes: " + std::generic_category().message(errno));
  bytes_ = {static_cast<std::byte*>(data), bytes};
}

void ZeroPages::discard() noexcept {
  ::madvise(bytes_.data(), bytes_.size(), MADV_DONTNEED);
}

ZeroPages::~ZeroPages() {
  ::munmap(bytes_.data(), bytes_.size());
}

class MemWindowTable::Owned final : public transports::Allocation {
 public:
  Owned(std::shared_ptr<MemWindowTable> table, int rank, std::size_t bytes)
      : Owned(std::move(table), rank, bytes, std::make_unique<ZeroPages>(bytes)) {}
  Owned(std::shared_ptr<MemWindowTable> table, int rank, std::size_t bytes,
        std::unique_ptr<ZeroPages> pages)
      : Allocation(pages->bytes()),
        table_(std::move(table)),
        rank_(static_cast<std::size_t>(rank)),
        pages_(std::move(pages)) {
    const std::lock_guard lock(table_->mutex_);
    table_->freed_.reserve(table_->freed_.size() + table_->live_[rank_].size() + 1);
    table_->live_[rank_].emplace(pages_->bytes().data(), bytes);
  }
  // Another rank may still be at an operation that has failed here: its accesses must hit nothing
  // else.
  ~Owned() override {
    const std::lock_guard lock(table_->mutex_);
    table_->live_[rank_].erase(pages_->bytes().data());
    pages_->discard();
    table_->freed_.push_back(std::move(pages_));
  }

 private:
  std::shared_ptr<MemWindowTable> table_;
  std::size_t rank_;
  std::unique_ptr<ZeroPages> pages_;
};

MemWindowTable::MemWindowTable(int size) : live_(static_cast<std::size_t>(size)) {
  for (int rank = 0; rank < size; ++rank)
    areas_.push_back(std::make_unique<ZeroPages>(transports::window_area_bytes));
}

std::unique_ptr<transports::Allocation> MemWindowTable::allocate(
    std::shared_ptr<MemWindowTable> table, int rank, std::size_t bytes) {
  return std::make_unique<Owned>(std::move(table), rank, bytes);
}

bool MemWindowTable::holds(int rank, const std::byte* data, std::size_t bytes) {
  const std::lock_guard lock(mutex_);
  const auto& live = live_[static_cast<std::size_t>(rank)];
  auto found = live.upper_bound(data);
  if (found == live.begin()) return false;
  --found;
  const auto offset = static_cast<std::size_t>(data - found->first);
  return offset <= found->second && bytes <= found->second - offset;
}

transports::WindowPlace MemWindows::find(const void* data, std::size_t bytes) noexcept {
  if (!table_->holds(rank_, static_cast<const std::byte*>(data), bytes)) return {};
  return {0, 1, reinterpret_cast<std::uintptr_t>(data)};
}

std::byte* MemWindows::map(int rank, transports::WindowPlace place, std::size_t bytes) {
  // Places are numbers; between threads of one process they are addresses.
  auto* const data = reinterpret_cast<std::byte*>(static_cast<std::uintptr_t>(place.offset));
  return place.generation == 1 && table_->holds(rank, data, bytes) ? data : nullptr;
}

void MemWindows::notify() noexcept {
  std::atomic_thread_fence(std::memory_order_seq_cst);
  for (std::size_t rank = 0; rank < bells_.size(); ++rank)
    if (static_cast<int>(rank) != rank_) bells_[rank].ring_sleeper();
}

}  // namespace rondo::mem
