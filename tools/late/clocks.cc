// SPDX-License-Identifier: Apache-2.0
#include "tools/late/clocks.h"

#include <algorithm>
#include <cstdint>
#include <limits>

namespace rondo::tools {
namespace {

constexpr int round_trips = 16;
constexpr std::uint32_t clock_tag = 0x434c4b;  // messages of the bench have small tags

}  // namespace

Clocks::Clocks(Communicator& communicator) : communicator_(communicator) {
  const auto size = static_cast<std::size_t>(communicator.size());
  const auto local = communicator.local_ranks();
  std::int32_t mine = communicator.rank();
  for (const int rank : local) mine = std::min<std::int32_t>(mine, rank);
  std::vector<std::int32_t> first(size, 0);
  communicator.all_gather(Buffer{&mine, 1, DType::i32}, Buffer{first.data(), size, DType::i32})
      .wait();
  answers_ = mine == communicator.rank() && mine != first[0];
  if (communicator.rank() != 0) return;
  for (const std::int32_t leader : first) {
    const bool other = leader != first[0] && leader > 0 && leader < communicator.size();
    host_of_.push_back(other ? place_of(leader) : -1);
  }
}

// The place of a host in hosts_, where it is added if it is new.
int Clocks::place_of(int first) {
  const auto known = std::find_if(hosts_.begin(), hosts_.end(),
                                  [=](const Host& host) { return host.first == first; });
  const auto place = static_cast<int>(known - hosts_.begin());
  if (known == hosts_.end()) hosts_.push_back({first, {}, {}});
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
  for (Host& host : hosts_) {
    host.before = host.now;
    host.now = ask(host.first);
  }
}

double Clocks::on_rank_0(int rank, double nanoseconds) const {
  const int place = host_of_[static_cast<std::size_t>(rank)];
  if (place < 0) return nanoseconds;
  const auto& [first, before, now] = hosts_[static_cast<std::size_t>(place)];
  const double span = now.at - before.at;
  const double share = span > 0 ? std::clamp((nanoseconds - before.at) / span, 0.0, 1.0) : 1;
  return nanoseconds - (before.offset + share * (now.offset - before.offset));
}

double Clocks::error_ns() const {
  double worst = 0, second = 0;
  for (const Host& host : hosts_) {
    const double error = std::max(host.before.error, host.now.error);
    second = std::max(second, std::min(worst, error));
    worst = std::max(worst, error);
  }
  return worst + second;
}

}  // namespace rondo::tools
