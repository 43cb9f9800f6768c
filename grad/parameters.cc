// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include <cstdint>
#include <cstring>
#include <limits>
#include <vector>

#include <rondo/error.h>
#include <rondo/parameters.h>

#include "grad/parameter_check.h"

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

struct Pack {
  std::vector<const Parameter*> members;
  std::vector<std::uint8_t> bytes;

  void gather() {
    for (const Parameter* each : members) {
      const auto* const from = static_cast<const std::uint8_t*>(each->value);
      bytes.insert(bytes.end(), from, from + bytes_of(*each));
    }
  }
  void scatter() const {
    std::size_t at = 0;
    for (const Parameter* each : members) {
      std::memcpy(each->value, bytes.data() + at, bytes_of(*each));
      at += bytes_of(*each);
    }
  }
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

std::optional<grad::OwnProblem> problem_of_values(const Communicator& communicator,
                                                  std::span<const Parameter> parameters, int root) {
  if (auto problem = grad::problem_of(parameters)) return problem;
  if (root < 0 || root >= communicator.size())
    return grad::OwnProblem{
        Errc::invalid_argument,
        fmt::format("broadcast_parameters: the root is {}, but the ranks are 0 to {}", root,
                    communicator.size() - 1)};
  for (const Parameter& each : parameters) {
    if (each.device >= 0)
      return grad::OwnProblem{
          Errc::unsupported,
          fmt::format("parameter '{}' is on device {}, but only host memory can be broadcast",
                      each.name, each.device)};
    if (each.value == nullptr && element_count(each) != 0)
      return grad::OwnProblem{
          Errc::invalid_argument,
          fmt::format("parameter '{}' has no values to broadcast: Parameter::value is null",
                      each.name)};
  }
  return std::nullopt;
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
  grad::check_lists(communicator, parameters, grad::problem_of(parameters));
}

void broadcast_parameters(Communicator& communicator, std::span<const Parameter> parameters,
                          int root) {
  grad::check_lists(communicator, parameters, problem_of_values(communicator, parameters, root));
  std::vector<Pack> packs = packs_of(parameters);
  PendingBroadcasts pending;  // destroyed before the packs
  for (Pack& pack : packs) {
    pack.gather();
    pending.start(communicator, buffer_of(std::span(pack.bytes)), root, pack.members.front()->name);
  }
  for (const Parameter& each : parameters)
    if (bytes_of(each) >= small_bytes)
      pending.start(communicator, {each.value, element_count(each), each.type}, root, each.name);
  pending.wait();
  if (communicator.rank() != root)
    for (const Pack& pack : packs) pack.scatter();
}

}  // namespace rondo
