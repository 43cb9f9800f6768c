// SPDX-License-Identifier: Apache-2.0
#include "lib/routes.h"

#include <fmt/format.h>

#include <algorithm>
#include <optional>
#include <set>

#include "base/log.h"
#include "base/text.h"

namespace rondo::lib {

namespace {

// Explains why a transport that this rank allows does not reach `rank`.
std::string allowed_by(int rank, const Record& record) {
  std::string names;
  for (const auto& one : record.addresses) names += (names.empty() ? "" : ",") + one.first;
  return fmt::format(
      "rank {} allows only {}; set RONDO_TRANSPORT (Options::transports) alike on all ranks", rank,
      names);
}

}  // namespace

void Routes::open(const TransportFactory& factory, const Options& options) {
  reserve_descriptors_to_join(place_, options, later_descriptors_);
  transports_ = factory(place_, options);
}

void Routes::connect(std::span<const Record> records, std::uint64_t job) {
  passed_over_.resize(records.size());
  for (int peer = 0; peer < place_.size; ++peer)
    if (peer != place_.rank) choose(peer, records[static_cast<std::size_t>(peer)]);
  drop_idle();
  std::set<std::string> names;
  for (const auto& transport : transports_) names.emplace(transport->name());
  name_ = base::join(names, "+");
  for (const auto& transport : transports_) {
    std::vector<transports::Blob> addresses;
    for (const Record& record : records) {
      const auto found = record.addresses.find(transport->name());
      addresses.push_back(found != record.addresses.end() ? found->second : transports::Blob{});
    }
    transport->start(std::move(addresses), job);
  }
}

void Routes::choose(int peer, const Record& record) {
  const auto rank = static_cast<std::size_t>(peer);
  std::string& why = passed_over_[rank];
  std::optional<int> best;
  for (const auto& transport : transports_) {
    const auto address = record.addresses.find(transport->name());
    const transports::Reach reach = address != record.addresses.end()
                                        ? transport->reach(peer, address->second)
                                        : transports::Reach{{}, allowed_by(peer, record)};
    if (!reach.distance)
      why += fmt::format("{}{}: {}", why.empty() ? "" : "; ", transport->name(), reach.why);
    if (!reach.distance || (best && *best <= *reach.distance)) continue;
    best = reach.distance;
    by_rank_[rank] = transport.get();
  }
  if (best) return;
  const bool may_use_tcp =
      std::ranges::any_of(transports_, [](const auto& one) { return one->name() == "tcp"; });
  throw Error(Errc::rendezvous,
              fmt::format("rank {} cannot reach rank {}: {}{}", place_.rank, peer, why,
                          may_use_tcp ? "" : "; RONDO_TRANSPORT does not allow tcp"));
}

// A transport without a route has a thread, listens and takes descriptors for nothing. Peers do not
// miss it: distance is symmetric, so they do not use it for this rank either.
void Routes::drop_idle() {
  address_ = transports_.back()->identity().text;
  const auto is_idle = [&](const std::unique_ptr<transports::Transport>& transport) {
    return std::ranges::find(by_rank_, transport.get()) == by_rank_.end();
  };
  const std::lock_guard lock(mutex_);
  std::erase_if(transports_, is_idle);
}

void Routes::interrupt(const std::string& cause) {
  const std::lock_guard lock(mutex_);
  for (const auto& transport : transports_) interrupt_start(*transport, cause);
}

void Routes::keep_room_for_links(int connections) {
  DescriptorShape shape;
  shape.connections = connections;
  for (const transports::Transport* const route : by_rank_) {
    if (route == nullptr) continue;
    shape.tcp_peers += route->name() == "tcp" ? 1 : 0;
    shape.rdma_peers += route->name() == "rdma" ? 1 : 0;
  }
  later_descriptors_.set(descriptors_of_links(shape));
}

std::string Routes::describe_peer(int peer) const {
  if (peer < 0 || peer >= place_.size)
    throw Error(Errc::invalid_argument,
                fmt::format("there is no rank {}: ranks go from 0 to {}", peer, place_.size - 1));
  const auto rank = static_cast<std::size_t>(peer);
  if (rank >= by_rank_.size() || by_rank_[rank] == nullptr) return {};
  const std::string how = by_rank_[rank]->describe_peer(peer);
  return fmt::format("{}{}{}", by_rank_[rank]->name(), how.empty() ? "" : ", ", how);
}

std::vector<transports::Transport*> Routes::all() const {
  std::vector<transports::Transport*> all;
  for (const auto& transport : transports_) all.push_back(transport.get());
  return all;
}

std::unique_ptr<transports::Allocation> Routes::allocate(std::size_t bytes) const {
  for (const auto& transport : transports_)
    if (auto allocation = transport->allocate(bytes)) return allocation;
  return nullptr;
}

Registration Routes::register_memory(void* data, std::size_t bytes) const {
  std::vector<std::unique_ptr<transports::Registration>> parts;
  for (const auto& transport : transports_)
    if (auto part = transport->register_memory({static_cast<std::byte*>(data), bytes}))
      parts.push_back(std::move(part));
  return {data, bytes, std::move(parts)};
}

// The last messages to a rank that has not called receive yet may still be in the sockets of this
// process. The control plane goes on meanwhile: the others learn from rank 0 who has left.
void Routes::linger(bool warns, base::TimePoint until) const noexcept {
  try {
    for (const auto& transport : transports_) {
      const std::vector<int> late = transport->linger(until);
      if (late.empty() || !warns) continue;
      base::log_line(
          base::LogLevel::warning,
          fmt::format(
              "rank {} leaves before all that it has sent has reached {}, which may not have "
              "called receive. The kernel goes on sending for some minutes; to be sure, end "
              "with a barrier",
              place_.rank, base::list_of_ranks(late)));
    }
  } catch (...) {  // no memory: what is not delivered may be lost
  }
}

}  // namespace rondo::lib
