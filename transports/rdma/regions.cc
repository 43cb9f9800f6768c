// SPDX-License-Identifier: Apache-2.0
#include "transports/rdma/regions.h"

#include <fmt/format.h>
#include <sys/resource.h>

#include <algorithm>
#include <cerrno>

#include <rondo/error.h>

#include "base/text.h"

namespace rondo::rdma {

std::string describe_lock_limit() {
  rlimit limit{};
  if (::getrlimit(RLIMIT_MEMLOCK, &limit) != 0 || limit.rlim_cur == RLIM_INFINITY) return {};
  return fmt::format(
      "; this process may lock {} of memory (RLIMIT_MEMLOCK): raise it (ulimit -l unlimited, "
      "LimitMEMLOCK=infinity, --ulimit memlock=-1)",
      base::describe_bytes(limit.rlim_cur));
}

std::string describe_refusal(int error, std::size_t bytes) {
  return fmt::format("registering {} failed: {}{}", base::describe_bytes(bytes),
                     base::describe_errno(error), error == ENOMEM ? describe_lock_limit() : "");
}

MemoryRegion::MemoryRegion(std::shared_ptr<Devices> devices, std::span<std::byte> memory,
                           int access)
    : devices_(std::move(devices)), memory_(memory) {
  const auto& all = devices_->all();
  parts_.reserve(all.size());
  for (std::size_t i = 0; i < all.size(); ++i) {
    ibv_mr* const part =
        all[i]->verbs().reg_mr(all[i]->domain(), memory.data(), memory.size(), access);
    if (part == nullptr) {
      const int error = errno;
      release();
      throw Error(Errc::system,
                  fmt::format("{}: {}", all[i]->name(), describe_refusal(error, memory_.size())));
    }
    parts_.push_back(part);
    keys_.local[i] = part->lkey;
    keys_.remote[i] = part->rkey;
  }
}

MemoryRegion::~MemoryRegion() {
  if (generation_ == base::process_generation()) release();
}

void MemoryRegion::release() noexcept {
  for (std::size_t i = 0; i < parts_.size(); ++i) devices_->all()[i]->verbs().dereg_mr(parts_[i]);
}

void Regions::add(const MemoryRegion& region) {
  const base::Locked lock(mutex_);
  entries_.push_back({region.memory().data(), region.memory().size(), region.keys()});
  version_.fetch_add(1, std::memory_order_release);
}

void Regions::remove(const MemoryRegion& region) noexcept {
  const base::Locked lock(mutex_);
  const auto found = std::ranges::find_if(entries_, [&](const Entry& one) {
    return one.begin == region.memory().data() && one.keys.local == region.keys().local;
  });
  if (found != entries_.end()) entries_.erase(found);
  version_.fetch_add(1, std::memory_order_release);
}

std::vector<Regions::Entry> Regions::list() const {
  const base::Locked lock(mutex_);
  return entries_;
}

void RegionCache::refresh() {
  if (version_ == regions_.version()) return;
  version_ = regions_.version();
  entries_ = regions_.list();
}

bool RegionCache::empty() {
  refresh();
  return entries_.empty();
}

// Programs have few regions, so a search through all of them is quick.
const Keys* RegionCache::find(const void* data, std::size_t bytes) {
  refresh();
  const auto* const begin = static_cast<const std::byte*>(data);
  for (const Regions::Entry& one : entries_)
    if (begin >= one.begin && bytes <= one.bytes &&
        static_cast<std::size_t>(begin - one.begin) <= one.bytes - bytes)
      return &one.keys;
  return nullptr;
}

}  // namespace rondo::rdma
