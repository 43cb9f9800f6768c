// SPDX-License-Identifier: Apache-2.0
//
// An address is: u64 the fabric's identity, u32 the rank.
#include "transports/mem/mem.h"

#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <optional>
#include <string>
#include <utility>

#include <rondo/error.h>

#include "base/bytes.h"
#include "base/clock.h"
#include "transports/mem/link.h"
#include "transports/mem/ring.h"
#include "transports/mem/windows.h"

namespace rondo::mem {

struct MemFabric::State {
  State(int ranks, MemFaults wrong, std::uint64_t seed_value)
      : size(ranks),
        faults(std::move(wrong)),
        seed(seed_value),
        bells(static_cast<std::size_t>(ranks)),
        made(bells.size()) {
    pipes.resize(bells.size() * bells.size() * transports::link_lane_count);
    for (int low = 0; low < size; ++low)
      for (int high = low + 1; high < size; ++high)
        for (int lane = 0; lane < transports::link_lane_count; ++lane)
          pipes[place(low, high, lane)] = std::make_unique<MemPipe>(faults.capacity);
    const auto now = static_cast<std::uint64_t>(base::Clock::now().time_since_epoch().count());
    if (faults.windows) windows = std::make_shared<MemWindowTable>(size);
    identity = now ^ (static_cast<std::uint64_t>(::getpid()) << 48) ^
               reinterpret_cast<std::uintptr_t>(this);
  }
  std::size_t place(int low, int high, int lane) const noexcept {
    return (static_cast<std::size_t>(low) * bells.size() + static_cast<std::size_t>(high)) *
               transports::link_lane_count +
           static_cast<std::size_t>(lane);
  }
  MemPipe& pipe(int a, int b, int lane) noexcept {
    return *pipes[place(std::min(a, b), std::max(a, b), lane)];
  }
  MemBell& bell(int rank) noexcept { return bells[static_cast<std::size_t>(rank)]; }

  const int size;
  const MemFaults faults;
  const std::uint64_t seed;
  std::uint64_t identity = 0;
  std::vector<MemBell> bells;
  std::vector<std::atomic<bool>> made;
  std::shared_ptr<MemWindowTable> windows;      // null without faults.windows
  std::vector<std::unique_ptr<MemPipe>> pipes;  // of pairs low < high; the rest is null
};

namespace {

class MemTransport final : public transports::Transport {
 public:
  MemTransport(MemFabric::State& fabric, int rank) : fabric_(fabric), rank_(rank) {
    // Lane by lane: the order in which progress() serves them.
    for (const transports::Lane lane : transports::link_lanes)
      for (int peer = 0; peer < fabric.size; ++peer)
        links_.push_back(peer == rank ? nullptr : make_link(peer, lane));
    if (fabric.windows) windows_.emplace(fabric.windows, rank, fabric.bells);
  }

  transports::Identity identity() const override {
    base::Writer writer;
    writer.put(fabric_.identity);
    writer.put(static_cast<std::uint32_t>(rank_));
    return {"mem", writer.take(), "mem rank " + std::to_string(rank_)};
  }
  transports::Reach reach(int peer, std::span<const std::byte> address) const override {
    base::Reader reader(address);
    const auto identity = reader.get<std::uint64_t>();
    const auto rank = reader.get<std::uint32_t>();
    if (!reader.ok() || reader.left() != 0)
      return {std::nullopt, "not an address of a mem transport"};
    if (identity != fabric_.identity)
      return {std::nullopt, "rank " + std::to_string(peer) + " is in another fabric or process"};
    if (peer < 0 || peer >= fabric_.size || rank != static_cast<std::uint32_t>(peer))
      return {std::nullopt, "the address is of rank " + std::to_string(rank) + ", not of rank " +
                                std::to_string(peer)};
    return {transports::distance_process, {}};
  }
  // The links of a fabric are there from the start; there is nobody to prove anything to.
  void start(std::vector<transports::Blob>, std::uint64_t) override {}
  transports::Link& link(int peer, transports::Lane lane) override {
    const auto row = static_cast<std::size_t>(std::ranges::find(transports::link_lanes, lane) -
                                              transports::link_lanes.begin());
    return *links_.at(row * static_cast<std::size_t>(fabric_.size) +
                      static_cast<std::size_t>(peer));
  }
  transports::Windows* windows() noexcept override { return windows_ ? &*windows_ : nullptr; }
  std::unique_ptr<transports::Allocation> allocate(std::size_t bytes) override {
    return windows_ ? fabric_.windows->allocate(fabric_.windows, rank_, bytes) : nullptr;
  }

  void halt() noexcept override {
    if (windows_) windows_->halt();
    for (const auto& link : links_)
      if (link) link->halt();
  }
  bool progress() override {
    fabric_.bell(rank_).get_up();
    bool moved = false;
    for (const auto& link : links_) moved |= link && link->progress();
    return moved;
  }
  transports::WakeSource wake_source() const noexcept override {
    return {fabric_.bell(rank_).descriptor()};
  }
  bool prepare_sleep() override {
    fabric_.bell(rank_).lie_down();
    for (const auto& link : links_) {
      if (!link || !link->ready()) continue;
      fabric_.bell(rank_).get_up();
      return false;
    }
    return true;
  }

 private:
  std::unique_ptr<MemLink> make_link(int peer, transports::Lane lane) {
    return std::make_unique<MemLink>(rank_, peer, lane, sinks_,
                                     fabric_.pipe(rank_, peer, static_cast<int>(lane)),
                                     fabric_.bell(peer), fabric_.faults, fabric_.seed);
  }

  MemFabric::State& fabric_;
  int rank_;
  std::vector<std::unique_ptr<MemLink>> links_;
  std::optional<MemWindows> windows_;
};

constexpr std::uint32_t most_grants = 1024;

void require(bool good, const std::string& message) {
  if (!good) throw Error(Errc::invalid_argument, message);
}

void check_route(int from, int to, int size, const std::string& name) {
  const auto is_rank = [size](int rank) { return rank >= 0 && rank < size; };
  require(is_rank(from) && is_rank(to) && from != to,
          name + " from rank " + std::to_string(from) + " to rank " + std::to_string(to) +
              " is not possible: give two different ranks of 0 to " + std::to_string(size - 1));
}

}  // namespace

MemFabric::MemFabric(int size, MemFaults faults, std::uint64_t seed) {
  require(size >= 1,
          "MemFabric: a size of " + std::to_string(size) + " is not possible: give at least 1");
  require(faults.capacity >= 1, "MemFaults: a capacity of 0 bytes moves nothing: give at least 1");
  require(faults.queue >= 1, "MemFaults: a queue of 0 frames moves nothing: give at least 1");
  require(faults.grants <= most_grants, "MemFaults: grants for " + std::to_string(faults.grants) +
                                            " frames are too many: give at most " +
                                            std::to_string(most_grants));
  for (const auto& cut : faults.cuts) check_route(cut.from, cut.to, size, "MemFaults: a cut");
  for (const auto& flip : faults.flips) check_route(flip.from, flip.to, size, "MemFaults: a flip");
  state_ = std::make_unique<State>(size, std::move(faults), seed);
}

MemFabric::~MemFabric() = default;

void MemFabric::hold(int from, int to, transports::Lane lane) {
  check_route(from, to, state_->size, "MemFabric: a hold");
  state_->pipe(from, to, static_cast<int>(lane)).held[MemPipe::direction(from, to)].store(true);
}

void MemFabric::release(int from, int to, transports::Lane lane) {
  check_route(from, to, state_->size, "MemFabric: a release");
  state_->pipe(from, to, static_cast<int>(lane)).held[MemPipe::direction(from, to)].store(false);
  state_->bell(to).ring();
}

std::unique_ptr<transports::Transport> MemFabric::endpoint(int rank) {
  require(rank >= 0 && rank < state_->size, "MemFabric: there is no rank " + std::to_string(rank) +
                                                " in a fabric of " + std::to_string(state_->size));
  require(!state_->made[static_cast<std::size_t>(rank)].exchange(true),
          "MemFabric: the endpoint of rank " + std::to_string(rank) +
              " exists already: make a fabric for each communicator");
  return std::make_unique<MemTransport>(*state_, rank);
}

}  // namespace rondo::mem
