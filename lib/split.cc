// SPDX-License-Identifier: Apache-2.0
//
// A split takes two all_gathers of the parent and an ordinary join of each group. The first
// all_gather says which ranks belong together and in which order. The second one says where a group
// joins (lib/split_message.h).
//
// Every rank takes part in both exactly once, even if it fails. So no rank waits in vain, and a
// group is told why it cannot join.
#include "lib/split.h"

#include <fmt/format.h>

#include <algorithm>
#include <exception>
#include <string>
#include <utility>
#include <vector>

#include <rondo/store.h>

#include "base/interruption.h"
#include "lib/needs.h"
#include "lib/split_message.h"
#include "lib/wire/join_report.h"

namespace rondo::lib {

namespace {

struct Group {
  int color = 0;
  std::vector<int> members;  // ranks of the parent, in the order of their ranks in the group
  int rank = 0;              // this rank's, in the group
};

transports::Blob gather(CommunicatorState& parent, const transports::Blob& mine,
                        milliseconds limit) {
  transports::Blob all(mine.size() * static_cast<std::size_t>(parent.size()));
  OpOptions options;
  options.deadline = limit;
  options.tag = "split";
  const Buffer in{const_cast<std::byte*>(mine.data()), mine.size(), DType::u8};
  const Buffer out{all.data(), all.size(), DType::u8};
  const Work work = parent.collectives().start(
      {parent.rank(), parent.size(), Collective::all_gather, in, out, ReduceOp::sum, 0, &options});
  try {
    while (!work.wait_for(base::interruption_interval)) base::Interruption::check();
  } catch (const Error& error) {
    // The operation uses `all` until it ends; the abort makes it end.
    if (!work.done()) parent.abort(error.code(), error.what());
    work.wait();
  }
  return all;
}

// Returns what `rank` gave to a gather.
template <std::size_t bytes>
std::span<const std::byte, bytes> record_of(const transports::Blob& all, int rank) {
  return std::span(all).subspan(static_cast<std::size_t>(rank) * bytes).template first<bytes>();
}

Group find_group(CommunicatorState& parent, int color, int key) {
  const transports::Blob wishes =
      gather(parent, encode(SplitWish{color, key}), parent.options().deadline);
  if (color < 0) return {};
  std::vector<std::pair<int, int>> ranks;  // by key, then by rank
  for (int rank = 0; rank < parent.size(); ++rank) {
    const SplitWish its = decode_split_wish(record_of<split_wish_bytes>(wishes, rank));
    if (its.color == color) ranks.emplace_back(its.key, rank);
  }
  std::sort(ranks.begin(), ranks.end());
  Group group{color, {}, 0};
  for (const auto& [its_key, rank] : ranks) {
    if (rank == parent.rank()) group.rank = static_cast<int>(group.members.size());
    group.members.push_back(rank);
  }
  return group;
}

// The parent failed while a group joined. This is no std::exception: a handler on the way must not
// take the parent's deadline for "the store has no value yet".
struct ParentFailed {
  std::exception_ptr cause;
};

// The store that the join of the group uses. One exchange serves both put and get.
class GroupStore final : public Store {
 public:
  GroupStore(CommunicatorState& parent, const Group& group) : parent_(parent), group_(group) {}

  void put(std::string_view, std::string_view value) override {
    exchange({.kind = SplitMessage::Kind::announcement, .text = std::string(value)});
  }
  std::string get(std::string_view, std::chrono::steady_clock::time_point) override {
    if (!exchanged_) exchange({});
    return announcement_;
  }

  bool exchanged() const noexcept { return exchanged_; }
  // Throws Error if a rank of the group has failed.
  void exchange(const SplitMessage& mine) {
    exchanged_ = true;
    const transports::Blob all = gather_from_all(encode(mine));
    for (const int rank : group_.members) read(rank, record_of<split_message_bytes>(all, rank));
  }

 private:
  transports::Blob gather_from_all(const transports::Blob& mine) {
    try {
      return gather(parent_, mine, parent_.options().connect_deadline);
    } catch (const std::exception&) {
      throw ParentFailed{std::current_exception()};
    }
  }

  void read(int rank, std::span<const std::byte, split_message_bytes> bytes) {
    auto message = decode_split_message(bytes);
    if (!message)
      fail(Errc::rendezvous, rank,
           "its message cannot be read: run the same version of Rondo on all ranks");
    if (message->kind == SplitMessage::Kind::failure) fail(message->code, rank, message->text);
    if (message->kind == SplitMessage::Kind::announcement && rank == group_.members.front())
      announcement_ = std::move(message->text);
  }
  [[noreturn]] void fail(Errc code, int rank, std::string_view cause) const {
    throw Error(code, fmt::format("split by color {}: rank {} of {}: {}", group_.color, rank,
                                  parent_.size(), cause));
  }

  CommunicatorState& parent_;
  const Group& group_;
  bool exchanged_ = false;
  std::string announcement_;
};

std::unique_ptr<CommunicatorState> join_group(CommunicatorState& parent, const Group& group,
                                              GroupStore& store, std::uint64_t number) {
  Options options = parent.options();
  options.rank = group.rank;
  options.size = static_cast<int>(group.members.size());
  options.rendezvous.clear();
  options.store = &store;
  options.ranks_on_host = parent.host_cores().ranks;
  rendezvous::Place place = parent.place();
  place.rank = options.rank;
  place.size = options.size;
  place.url.clear();
  place.source = "split";
  place.deadline = base::after(base::Clock::now(), options.connect_deadline);
  place.constants = parent.constants();
  place.host_processors = parent.host_cores().processors;
  place.ranks.clear();
  for (const int member : group.members) place.ranks.push_back(parent.place().rank_outside(member));
  place.group = fmt::format("{}/{}.{}", parent.place().group, number, group.color);
  return std::make_unique<CommunicatorState>(options, place, parent.factory());
}

std::unique_ptr<CommunicatorState> split_in_groups(CommunicatorState& parent, const Group& group,
                                                   std::uint64_t number) {
  GroupStore store(parent, group);
  std::unique_ptr<CommunicatorState> result;
  if (group.color >= 0 && !group.members.empty()) {
    try {
      result = join_group(parent, group, store, number);
    } catch (const std::exception& error) {
      if (!store.exchanged())
        store.exchange({SplitMessage::Kind::failure, wire::failure_of(error).code, error.what()});
      throw;
    }
  }
  if (!store.exchanged()) store.exchange({});
  return result;
}

}  // namespace

std::unique_ptr<CommunicatorState> split(CommunicatorState& parent, int color, int key,
                                         std::uint64_t number) {
  parent.refuse_child();
  const base::Interruption interruption(parent.options().interrupted);
  const Group group = find_group(parent, color, key);
  try {
    auto made = split_in_groups(parent, group, number);
    if (made && number > 1)
      warn_when_short_of_descriptors(
          fmt::format("rank {} of {} after split {}", parent.rank(), parent.size(), number));
    return made;
  } catch (const ParentFailed& failed) {
    std::rethrow_exception(failed.cause);
  }
}

}  // namespace rondo::lib
