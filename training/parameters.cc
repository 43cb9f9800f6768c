// SPDX-License-Identifier: Apache-2.0
//
// All broadcasts are started before the first is waited for: small tensors in packs, large ones
// from where they lie. A rank that fails in between aborts, because the others wait for it.
#include <fmt/format.h>

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <limits>
#include <memory>
#include <new>
#include <optional>
#include <set>
#include <utility>
#include <vector>

#include <rondo/error.h>
#include <rondo/parameters.h>

#include "device/keep.h"
#include "training/parameter_check.h"
#include "training/value_copies.h"

namespace rondo {

namespace {

// Smaller tensors travel together. A model may have hundreds of them, as in batch norm layers, and
// each would cost a round of messages.
constexpr std::size_t small_bytes = std::size_t{64} << 10;
constexpr std::size_t pack_bytes = std::size_t{4} << 20;

std::size_t bytes_of(const Parameter& parameter) {
  return element_count(parameter) * size_of(parameter.type);
}

// Buffers are borrowed until operations end, also when one of them fails.
class PendingBroadcasts {
 public:
  PendingBroadcasts() = default;
  PendingBroadcasts(const PendingBroadcasts&) = delete;
  PendingBroadcasts& operator=(const PendingBroadcasts&) = delete;
  ~PendingBroadcasts() {
    for (Work& work : works_) {
      try {
        work.wait();
      } catch (const std::exception&) {
        // The first failure has been thrown.
      }
    }
  }
  void start(Communicator& communicator, const Buffer& buffer, int root, std::string_view tag) {
    OpOptions options;
    options.tag = tag;
    works_.push_back(communicator.broadcast(buffer, buffer, root, options));
  }
  void wait() {
    for (Work& work : works_) work.wait();
  }

 private:
  std::vector<Work> works_;
};

// Small tensors that travel together, those in host memory and those on GPUs alike, in the order of
// the list: so ranks make the same packs wherever their tensors are.
class Pack {
 public:
  Pack() = default;
  Pack(Pack&&) = default;
  // Copies that may still come find their memory.
  ~Pack() {
    if (copies_ != nullptr && !settle()) device::keep_until_exit(std::move(pinned_));
  }

  std::vector<const Parameter*> members;

  Buffer buffer() const { return {data_, bytes_, DType::u8}; }
  // Before the broadcast. with_values: of the root.
  void make(training::ValueCopies& copies, bool with_values) {
    bytes_ = 0;
    std::optional<int> device;
    for (const Parameter* each : members) {
      bytes_ += bytes_of(*each);
      if (each->device >= 0) device = each->device;
    }
    if (device) {
      pinned_ = std::make_unique<device::PinnedMemory>(copies.pinned(*device, bytes_));
      data_ = pinned_->data();
    } else {
      memory_.resize(bytes_);
      data_ = memory_.data();
    }
    if (!with_values) return;
    if (pinned_) copies_ = &copies;
    for_each([&](const Parameter& each, std::byte* packed, std::size_t bytes) {
      if (each.device < 0)
        std::memcpy(packed, each.value, bytes);
      else
        copies.to_host(packed, each, bytes);
    });
    wait(copies);
  }
  void scatter(training::ValueCopies& copies) {
    if (pinned_) copies_ = &copies;
    for_each([&](const Parameter& each, const std::byte* packed, std::size_t bytes) {
      if (each.device < 0)
        std::memcpy(each.value, packed, bytes);
      else
        copies.to_gpu(each, packed, bytes);
    });
    wait(copies);
  }

 private:
  template <class Visit>
  void for_each(const Visit& visit) const {
    std::size_t at = 0;
    for (const Parameter* each : members) {
      visit(*each, data_ + at, bytes_of(*each));
      at += bytes_of(*each);
    }
  }
  // Whether no copy is under way any more.
  bool settle() const noexcept {
    try {
      return std::ranges::all_of(devices(), [&](int device) { return copies_->settle(device); });
    } catch (const std::bad_alloc&) {
      return false;
    }
  }
  std::set<int> devices() const {
    std::set<int> devices;
    for (const Parameter* each : members)
      if (each->device >= 0) devices.insert(each->device);
    return devices;
  }
  void wait(training::ValueCopies& copies) {
    for (const int device : devices()) copies.wait(device);
    copies_ = nullptr;
  }

  std::vector<std::byte> memory_;
  std::unique_ptr<device::PinnedMemory> pinned_;  // instead, with members on a GPU
  training::ValueCopies* copies_ = nullptr;       // while copies may be under way
  std::byte* data_ = nullptr;
  std::size_t bytes_ = 0;
};

std::vector<Pack> packs_of(std::span<const Parameter> parameters) {
  std::vector<Pack> packs;
  std::size_t bytes = pack_bytes;  // of the last pack
  for (const Parameter& each : parameters) {
    const std::size_t own = bytes_of(each);
    if (own == 0 || own >= small_bytes) continue;
    if (bytes + own > pack_bytes) {
      packs.emplace_back();
      bytes = 0;
    }
    packs.back().members.push_back(&each);
    bytes += own;
  }
  return packs;
}

std::optional<training::OwnProblem> problem_of_values(const Communicator& communicator,
                                                      training::ValueCopies& copies,
                                                      std::span<const Parameter> parameters,
                                                      int root) {
  if (auto problem = training::problem_of(parameters)) return problem;
  if (root < 0 || root >= communicator.size())
    return training::OwnProblem{
        Errc::invalid_argument,
        fmt::format("broadcast_parameters: the root is {}, but the ranks are 0 to {}", root,
                    communicator.size() - 1)};
  for (const Parameter& each : parameters) {
    if (each.value == nullptr && element_count(each) != 0)
      return training::OwnProblem{
          Errc::invalid_argument,
          fmt::format("parameter '{}' has no values to broadcast: Parameter::value is null",
                      each.name)};
    if (each.device >= 0 && element_count(each) != 0)
      if (auto problem = copies.problem_of(each)) return problem;
  }
  return std::nullopt;
}

// The other ranks wait for this one.
template <class Function>
void or_tell_all(Communicator& communicator, const Function& function) {
  try {
    function();
  } catch (const std::exception& error) {
    communicator.abort(Errc::aborted, fmt::format("rank {}: broadcast_parameters: {}",
                                                  communicator.rank(), error.what()));
    throw;
  }
}

}  // namespace

std::size_t element_count(const Parameter& parameter) {
  std::size_t count = 1;
  bool fits = true;
  for (const std::size_t dimension : parameter.shape) {
    if (dimension == 0) return 0;
    if (count > std::numeric_limits<std::size_t>::max() / dimension) fits = false;
    count *= dimension;
  }
  if (!fits || (is_valid(parameter.type) &&
                count > std::numeric_limits<std::size_t>::max() / size_of(parameter.type)))
    throw Error(
        Errc::invalid_argument,
        fmt::format("parameter '{}' has more elements than 64 bits can count", parameter.name));
  return count;
}

void check_parameters(Communicator& communicator, std::span<const Parameter> parameters) {
  training::check_lists(communicator, parameters, training::problem_of(parameters));
}

void broadcast_parameters(Communicator& communicator, std::span<const Parameter> parameters,
                          int root) {
  training::ValueCopies copies(communicator);
  training::check_lists(communicator, parameters,
                        problem_of_values(communicator, copies, parameters, root));
  const bool is_root = communicator.rank() == root;
  std::vector<Pack> packs = packs_of(parameters);
  PendingBroadcasts pending;  // destroyed before the packs
  for (Pack& pack : packs) {
    or_tell_all(communicator, [&] { pack.make(copies, is_root); });
    pending.start(communicator, pack.buffer(), root, pack.members.front()->name);
  }
  for (const Parameter& each : parameters)
    if (bytes_of(each) >= small_bytes)
      pending.start(communicator, {each.value, element_count(each), each.type, each.device}, root,
                    each.name);
  pending.wait();
  if (is_root) return;
  for (Pack& pack : packs) or_tell_all(communicator, [&] { pack.scatter(copies); });
}

}  // namespace rondo
