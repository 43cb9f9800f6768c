// SPDX-License-Identifier: Apache-2.0
#include "tools/late/clocks.h"

#include <algorithm>
#include <cstdint>
#include <limits>
#include <string>

#include "base/mix.h"
#include "base/process.h"
#include "tools/shared/agree.h"

namespace rondo::tools {
namespace {

constexpr int round_trips = 16;
constexpr std::uint32_t clock_tag = 0x434c4b;  // messages of the bench have small tags

// Returns 0 if nothing proves which clock this is.
std::uint64_t hash_of_clock() {
  const std::string text = base::clock_identity();
  const std::vector<std::uint8_t> bytes(text.begin(), text.end());
  return bytes.empty() ? 0 : base::hash_bytes(bytes);
}

}  // namespace

Clocks::Clocks(Communicator& communicator) : communicator_(communicator) {
  const auto local = communicator.local_ranks();
  // The first rank of this host, and what proves that its ranks read one clock.
  struct Identity {
    std::uint64_t host = 0, clock = 0;
    bool operator==(const Identity&) const = default;
  };
  const Identity mine{static_cast<std::uint64_t>(*std::ranges::min_element(local)),
                      hash_of_clock()};
  const std::vector<Identity> all = gather_from_ranks(communicator, mine);
  const auto first_of = [&](const Identity& clock, int rank) {
    if (clock.clock == 0) return rank;
    return static_cast<int>(std::ranges::find(all, clock) - all.begin());
  };
  answers_ = communicator.rank() > 0 && first_of(mine, communicator.rank()) == communicator.rank();
  if (communicator.rank() != 0) return;
  for (int rank = 0; rank < communicator.size(); ++rank) {
    const int first = first_of(all[static_cast<std::size_t>(rank)], rank);
    clock_of_.push_back(first == 0 ? -1 : place_of(first));
  }
}

// Returns the place of a clock in others_, and adds it if it is new.
int Clocks::place_of(int first) {
  const auto known = std::ranges::find(others_, first, &Other::first);
  const auto place = static_cast<int>(known - others_.begin());
  if (known == others_.end()) others_.push_back({first, {}, {}});
  return place;
}

Clocks::Mark Clocks::ask(int rank) {
  Mark best{0, 0, std::numeric_limits<double>::infinity()};
  double shown = 0;
  const Buffer nothing{}, answer{&shown, 1, DType::f64};
  for (int i = 0; i < round_trips; ++i) {
    const double sent = steady_ns();
    communicator_.send(nothing, rank, clock_tag).wait();
    communicator_.receive(answer, rank, clock_tag).wait();
    const double half = (steady_ns() - sent) / 2;
    if (half < best.error) best = {shown, shown - (sent + half), half};
  }
  return best;
}

void Clocks::answer() {
  const Buffer nothing{};
  for (int i = 0; i < round_trips; ++i) {
    communicator_.receive(nothing, 0, clock_tag).wait();
    double shown = steady_ns();
    communicator_.send(Buffer{&shown, 1, DType::f64}, 0, clock_tag).wait();
  }
}

void Clocks::mark() {
  if (answers_) answer();
  for (Other& other : others_) {
    other.before = other.now;
    other.now = ask(other.first);
  }
}

double Clocks::on_rank_0(int rank, double nanoseconds) const {
  const int place = clock_of_[static_cast<std::size_t>(rank)];
  if (place < 0) return nanoseconds;
  const auto& [first, before, now] = others_[static_cast<std::size_t>(place)];
  const double span = now.at - before.at;
  const double share = span > 0 ? std::clamp((nanoseconds - before.at) / span, 0.0, 1.0) : 1;
  return nanoseconds - (before.offset + share * (now.offset - before.offset));
}

double Clocks::error_ns() const {
  double worst = 0, second = 0;
  for (const Other& other : others_) {
    const double error = std::max(other.before.error, other.now.error);
    second = std::max(second, std::min(worst, error));
    worst = std::max(worst, error);
  }
  return worst + second;
}

}  // namespace rondo::tools
