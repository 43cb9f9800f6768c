// SPDX-License-Identifier: Apache-2.0
//
// An address is: u64 the fabric's identity, u32 the rank.
#include "transports/mem/mem.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <optional>
#include <utility>

#include <rondo/error.h>

#include "base/bytes.h"
#include "base/clock.h"
#include "transports/mem/link.h"
#include "transports/mem/windows.h"

namespace rondo::mem {

struct MemFabric::State {
  State(int ranks, MemFaults wrong, std::uint64_t seed)
      : size(ranks),
        faults(std::move(wrong)),
        bells(static_cast<std::size_t>(ranks)),
        made(bells.size()) {
    for (int high = 1; high < size; ++high)
      for (int low = 0; low < high; ++low)
        for (int lane = 0; lane < transports::link_lane_count; ++lane) {
          const auto of = static_cast<transports::Lane>(lane);
          pipes.emplace_back(new MemPipe{{low, high, of, faults, seed, bell(low), bell(high)},
                                         {high, low, of, faults, seed, bell(high), bell(low)}});
        }
    const auto now = static_cast<std::uint64_t>(base::Clock::now().time_since_epoch().count());
    if (faults.windows) memory = std::make_shared<MemMemory>(size);
    identity = now ^ (static_cast<std::uint64_t>(::getpid()) << 48) ^
               reinterpret_cast<std::uintptr_t>(this);
  }
  MemPipe& pipe(int a, int b, transports::Lane lane) noexcept {
    const auto low = static_cast<std::size_t>(std::min(a, b));
    const auto high = static_cast<std::size_t>(std::max(a, b));
    return *pipes[(high * (high - 1) / 2 + low) * transports::link_lane_count +
                  static_cast<std::size_t>(lane)];
  }
  MemBell& bell(int rank) noexcept { return bells[static_cast<std::size_t>(rank)]; }

  const int size;
  const MemFaults faults;
  std::uint64_t identity = 0;
  std::vector<MemBell> bells;
  std::vector<std::atomic<bool>> made;
  std::shared_ptr<MemMemory> memory;            // null without faults.windows
  std::vector<std::unique_ptr<MemPipe>> pipes;  // by pair of ranks and lane
};

namespace {

class MemTransport final : public transports::Transport {
 public:
  MemTransport(MemFabric::State& fabric, int rank) : fabric_(fabric), rank_(rank) {
    // Lane by lane: the order in which progress() serves them.
    for (const transports::Lane lane : transports::link_lanes)
      for (int peer = 0; peer < fabric.size; ++peer)
        if (peer != rank)
          links_.push_back(
              std::make_unique<MemLink>(rank, peer, lane, sinks_, fabric.pipe(rank, peer, lane)));
    if (fabric.memory) windows_.emplace(*fabric.memory, rank, fabric.bells);
  }

  transports::Identity identity() const override {
    base::Writer writer;
    writer.put(fabric_.identity);
    writer.put(static_cast<std::uint32_t>(rank_));
    return {"mem", writer.take(), fmt::format("mem rank {}", rank_)};
  }
  transports::Reach reach(int peer, std::span<const std::byte> address) const override {
    base::Reader reader(address);
    const auto identity = reader.get<std::uint64_t>();
    const auto rank = reader.get<std::uint32_t>();
    if (!reader.ok() || reader.left() != 0) return {{}, "not an address of a mem transport"};
    if (identity != fabric_.identity)
      return {{}, fmt::format("rank {} is in another fabric or process", peer)};
    if (peer < 0 || peer >= fabric_.size || rank != static_cast<std::uint32_t>(peer))
      return {{}, fmt::format("the address is of rank {}, not of rank {}", rank, peer)};
    return {transports::distance_process, {}};
  }
  // The links of a fabric are there from the start; there is nobody to prove anything to.
  void start(std::vector<transports::Blob>, std::uint64_t) override {}
  transports::Link& link(int peer, transports::Lane lane) override {
    const auto is_it = [&](const auto& link) {
      return link->peer() == peer && link->lane() == lane;
    };
    return **std::ranges::find_if(links_, is_it);
  }
  transports::Windows* windows() noexcept override { return windows_ ? &*windows_ : nullptr; }
  std::unique_ptr<transports::Allocation> allocate(std::size_t bytes) override {
    if (!windows_) return nullptr;
    return std::make_unique<MemAllocation>(fabric_.memory, rank_, bytes);
  }

  void halt() noexcept override {
    if (windows_) windows_->halt();
    for (const auto& link : links_) link->halt();
  }
  bool progress() override {
    fabric_.bell(rank_).get_up();
    bool moved = false;
    for (const auto& link : links_) moved |= link->progress();
    return moved;
  }
  transports::WakeSource wake_source() const noexcept override {
    return {fabric_.bell(rank_).descriptor()};
  }
  bool prepare_sleep() override {
    fabric_.bell(rank_).lie_down();
    if (std::ranges::none_of(links_, [](const auto& link) { return link->ready(); })) return true;
    fabric_.bell(rank_).get_up();
    return false;
  }

 private:
  MemFabric::State& fabric_;
  const int rank_;
  std::vector<std::unique_ptr<MemLink>> links_;  // in the order of link_lanes
  std::optional<MemWindows> windows_;
};

constexpr std::uint32_t most_grants = 1024;

void require(bool good, const std::string& message) {
  if (!good) throw Error(Errc::invalid_argument, message);
}

void check_route(int from, int to, int size, std::string_view name) {
  const auto is_rank = [size](int rank) { return rank >= 0 && rank < size; };
  require(is_rank(from) && is_rank(to) && from != to,
          fmt::format("{} from rank {} to rank {} is not possible: give two different ranks of 0 "
                      "to {}",
                      name, from, to, size - 1));
}

}  // namespace

MemFabric::MemFabric(int size, MemFaults faults, std::uint64_t seed) {
  require(size >= 1, fmt::format("MemFabric: a size of {} is not possible: give at least 1", size));
  require(faults.capacity >= 1, "MemFaults: a capacity of 0 bytes moves nothing: give at least 1");
  require(faults.queue >= 1, "MemFaults: a queue of 0 frames moves nothing: give at least 1");
  require(faults.grants <= most_grants,
          fmt::format("MemFaults: grants for {} frames are too many: give at most {}",
                      faults.grants, most_grants));
  for (const auto& cut : faults.cuts) check_route(cut.from, cut.to, size, "MemFaults: a cut");
  for (const auto& flip : faults.flips) check_route(flip.from, flip.to, size, "MemFaults: a flip");
  state_ = std::make_unique<State>(size, std::move(faults), seed);
}

MemFabric::~MemFabric() = default;

void MemFabric::hold(int from, int to, transports::Lane lane) {
  check_route(from, to, state_->size, "MemFabric: a hold");
  state_->pipe(from, to, lane).from(from).held.store(true);
}

void MemFabric::release(int from, int to, transports::Lane lane) {
  check_route(from, to, state_->size, "MemFabric: a release");
  state_->pipe(from, to, lane).from(from).held.store(false);
  state_->bell(to).ring();
}

std::unique_ptr<transports::Transport> MemFabric::endpoint(int rank) {
  require(rank >= 0 && rank < state_->size,
          fmt::format("MemFabric: there is no rank {} in a fabric of {}", rank, state_->size));
  require(!state_->made[static_cast<std::size_t>(rank)].exchange(true),
          fmt::format("MemFabric: the endpoint of rank {} exists already: make a fabric for each "
                      "communicator",
                      rank));
  return std::make_unique<MemTransport>(*state_, rank);
}

}  // namespace rondo::mem
