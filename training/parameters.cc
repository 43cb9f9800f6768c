// SPDX-License-Identifier: Apache-2.0
//
// Up to most_pending broadcasts are under way: small tensors in packs, large ones and those on GPUs
// from where they lie. A rank that fails in between aborts, because the others wait for it.
#include <fmt/format.h>

#include <algorithm>
#include <limits>
#include <string>
#include <string_view>
#include <vector>

#include <rondo/error.h>
#include <rondo/parameters.h>

#include "device/gpus.h"
#include "device/pointer.h"
#include "training/parameter_check.h"

namespace rondo {

namespace {

// Smaller tensors travel together. A model may have hundreds of them, as in batch norm layers, and
// each would cost a round of messages.
constexpr std::size_t small_bytes = std::size_t{64} << 10;
constexpr std::size_t pack_bytes = std::size_t{4} << 20;

std::size_t bytes_of(const Parameter& parameter) {
  return element_count(parameter) * size_of(parameter.type);
}

// To start an operation on a GPU takes time for each that is under way: it may use their memory.
constexpr std::size_t most_pending = 128;

// Buffers are borrowed until operations end, also when one of them fails.
class PendingBroadcasts {
 public:
  PendingBroadcasts(Communicator& communicator, int root) noexcept
      : communicator_(communicator), root_(root) {}
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
  void start(const Buffer& buffer, std::string_view tag) {
    if (works_.size() >= most_pending) works_[works_.size() - most_pending].wait();
    works_.push_back(communicator_.broadcast(buffer, buffer, root_, {.tag = tag}));
  }
  void wait() {
    for (Work& work : works_) work.wait();
  }

 private:
  Communicator& communicator_;
  const int root_;
  std::vector<Work> works_;
};

// Small tensors in host memory that travel together.
struct Pack {
  std::vector<const Parameter*> members{};
  std::vector<std::byte> bytes{};

  Buffer buffer() { return {bytes.data(), bytes.size(), DType::u8}; }
  void gather() {
    std::byte* packed = bytes.data();
    for (const Parameter* each : members)
      packed = std::copy_n(static_cast<const std::byte*>(each->value), bytes_of(*each), packed);
  }
  void scatter() const {
    const std::byte* packed = bytes.data();
    for (const Parameter* each : members) {
      std::copy_n(packed, bytes_of(*each), static_cast<std::byte*>(each->value));
      packed += bytes_of(*each);
    }
  }
};

bool is_packed(const Parameter& parameter) {
  return parameter.device < 0 && bytes_of(parameter) < small_bytes;
}

std::vector<Pack> packs_of(std::span<const Parameter> parameters) {
  std::vector<Pack> packs;
  for (const Parameter& each : parameters) {
    const std::size_t own = bytes_of(each);
    if (own == 0 || !is_packed(each)) continue;
    if (packs.empty() || packs.back().bytes.size() + own > pack_bytes) packs.emplace_back();
    packs.back().members.push_back(&each);
    packs.back().bytes.resize(packs.back().bytes.size() + own);
  }
  return packs;
}

// Throws Error unless these values can be copied.
void check_on_gpu(device::Gpus& gpus, const Parameter& parameter) {
  std::string stream, memory;
  try {
    const device::Gpu& gpu = gpus.gpu(parameter.device);
    const device::Current current(gpu);
    stream = device::problem_of_stream(gpu, nullptr);
    memory = device::problem_of_memory(gpu, parameter.value, bytes_of(parameter), "it should be");
  } catch (const Error& error) {
    throw Error(error.code(), fmt::format("parameter '{}' is on GPU {}: {}", parameter.name,
                                          parameter.device, error.what()));
  }
  if (!stream.empty())
    throw Error(Errc::unsupported, fmt::format("broadcast_parameters: {}", stream));
  if (!memory.empty())
    throw Error(Errc::invalid_argument, fmt::format("parameter '{}' {}", parameter.name, memory));
}

// Throws Error unless this rank can broadcast the values.
void check_values(const Communicator& communicator, std::span<const Parameter> parameters,
                  int root) {
  training::check_list(parameters);
  if (root < 0 || root >= communicator.size())
    throw Error(Errc::invalid_argument,
                fmt::format("broadcast_parameters: the root is {}, but the ranks are 0 to {}", root,
                            communicator.size() - 1));
  device::Gpus gpus;
  for (const Parameter& each : parameters) {
    if (element_count(each) == 0) continue;
    if (each.value == nullptr)
      throw Error(Errc::invalid_argument,
                  fmt::format("parameter '{}' has no values to broadcast: Parameter::value is null",
                              each.name));
    if (each.device >= 0) check_on_gpu(gpus, each);
  }
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
  training::check_lists(communicator, parameters, [&] { training::check_list(parameters); });
}

void broadcast_parameters(Communicator& communicator, std::span<const Parameter> parameters,
                          int root) {
  training::check_lists(communicator, parameters,
                        [&] { check_values(communicator, parameters, root); });
  std::vector<Pack> packs;
  PendingBroadcasts pending(communicator, root);  // destroyed before the packs
  or_tell_all(communicator, [&] {
    packs = packs_of(parameters);
    for (Pack& pack : packs) {
      if (communicator.rank() == root) pack.gather();
      pending.start(pack.buffer(), pack.members.front()->name);
    }
    for (const Parameter& each : parameters)
      if (!is_packed(each) && bytes_of(each) != 0)
        pending.start({each.value, element_count(each), each.type, each.device}, each.name);
  });
  pending.wait();
  if (communicator.rank() == root) return;
  for (const Pack& pack : packs) pack.scatter();
}

}  // namespace rondo
