// SPDX-License-Identifier: Apache-2.0
//
// A split takes two all_gathers of the parent and an ordinary join of each group:
//
//   wish    := color:i32 key:i32                      ; the first: who belongs together, in which
//                                                     ; order
//   message := kind:u8 code:u8 length:u16 byte*4096   ; the second: how to meet; `length` bytes
//                                                     ; count
//   kind    := 0 (nothing to say) | 1 (the announcement of a group's rank 0)
//            | 2 (this rank has failed: code and cause)
//
// Every rank takes part in both exactly once, whatever happens to it: so nobody waits in vain, and
// a group hears why it cannot be.
#include "lib/split.h"

#include <fmt/format.h>

#include <algorithm>
#include <exception>
#include <optional>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include <rondo/store.h>

#include "base/bytes.h"
#include "lib/needs.h"
#include "lib/rendezvous/announcement.h"

namespace rondo::lib {

namespace {

enum class Kind : std::uint8_t { nothing, announcement, failure };

constexpr std::size_t wish_bytes = 8, message_head = 4,
                      message_bytes = message_head + rendezvous::most_announcement_bytes;

struct Group {
  int color = 0;
  std::vector<int> members;  // ranks of the parent, in the order of the new ranks
  int rank = 0;              // this one's
};

transports::Blob gather(CommunicatorState& parent, const transports::Blob& mine,
                        milliseconds limit) {
  transports::Blob all(mine.size() * static_cast<std::size_t>(parent.size()));
  OpOptions options;
  options.deadline = limit;
  options.tag = "split";
  const Buffer in{const_cast<std::byte*>(mine.data()), mine.size(), DType::u8};
  const Buffer out{all.data(), all.size(), DType::u8};
  parent
      .start({parent.rank(), parent.size(), Collective::all_gather, in, out, ReduceOp::sum, 0, true,
              true, &options})
      .wait();
  return all;
}

Group find_group(CommunicatorState& parent, int color, int key) {
  transports::Blob wish(wish_bytes);
  base::store_little(wish.data(), static_cast<std::uint32_t>(color));
  base::store_little(wish.data() + 4, static_cast<std::uint32_t>(key));
  const transports::Blob wishes = gather(parent, wish, parent.options().deadline);
  if (color < 0) return {};
  std::vector<std::pair<int, int>> ranks;  // by key, then by rank
  for (int rank = 0; rank < parent.size(); ++rank) {
    const std::byte* const at = wishes.data() + static_cast<std::size_t>(rank) * wish_bytes;
    if (static_cast<int>(base::load_little<std::uint32_t>(at)) == color)
      ranks.emplace_back(static_cast<int>(base::load_little<std::uint32_t>(at + 4)), rank);
  }
  std::sort(ranks.begin(), ranks.end());
  Group group{color, {}, 0};
  for (const auto& [its_key, rank] : ranks) {
    if (rank == parent.rank()) group.rank = static_cast<int>(group.members.size());
    group.members.push_back(rank);
  }
  return group;
}

// The parent failed while a group joined. This is no std::exception, so that no handler on the way
// takes the parent's deadline for "nothing in the store yet".
struct ParentFailed {
  std::exception_ptr cause;
};

// What the join of the group uses as the program's store. One exchange answers both its put and its
// get.
class Meeting final : public Store {
 public:
  Meeting(CommunicatorState& parent, const Group& group) : parent_(parent), group_(group) {}

  void put(std::string_view, std::string_view value) override {
    exchange(Kind::announcement, {}, value);
  }
  std::string get(std::string_view, std::chrono::steady_clock::time_point) override {
    if (!exchanged_) exchange(Kind::nothing, {}, {});
    return announcement_;
  }

  bool exchanged() const noexcept { return exchanged_; }
  // Throws when a rank of the group has failed.
  void exchange(Kind kind, std::error_code code, std::string_view text) {
    exchanged_ = true;
    transports::Blob mine(message_bytes);
    const std::size_t length = std::min(text.size(), rendezvous::most_announcement_bytes);
    mine[0] = static_cast<std::byte>(kind);
    mine[1] = static_cast<std::byte>(code.category() == error_category() ? code.value() : 0);
    base::store_little(mine.data() + 2, static_cast<std::uint16_t>(length));
    std::copy_n(reinterpret_cast<const std::byte*>(text.data()), length,
                mine.begin() + message_head);
    const transports::Blob all = gather_from_all(mine);
    for (const int rank : group_.members)
      read(rank, all.data() + static_cast<std::size_t>(rank) * message_bytes);
  }

 private:
  transports::Blob gather_from_all(const transports::Blob& mine) {
    try {
      return gather(parent_, mine, parent_.options().connect_deadline);
    } catch (const std::exception&) {
      throw ParentFailed{std::current_exception()};
    }
  }

  void read(int rank, const std::byte* message) {
    const auto kind = static_cast<Kind>(message[0]);
    const auto length = base::load_little<std::uint16_t>(message + 2);
    const std::string text(reinterpret_cast<const char*>(message + message_head),
                           std::min<std::size_t>(length, rendezvous::most_announcement_bytes));
    const auto code = std::to_integer<int>(message[1]);
    if (kind == Kind::failure)
      throw Error(is_valid_code(code) ? static_cast<Errc>(code) : Errc::rendezvous,
                  fmt::format("split by color {}: rank {} of {}: {}", group_.color, rank,
                              parent_.size(), text));
    if (kind == Kind::announcement && rank == group_.members.front()) announcement_ = text;
  }
  static bool is_valid_code(int code) noexcept {
    return code >= static_cast<int>(Errc::invalid_argument) &&
           code <= static_cast<int>(Errc::system);
  }

  CommunicatorState& parent_;
  const Group& group_;
  bool exchanged_ = false;
  std::string announcement_;
};

std::unique_ptr<CommunicatorState> join_group(CommunicatorState& parent, const Group& group,
                                              Meeting& meeting, std::uint64_t number) {
  Options options = parent.options();
  options.rank = group.rank;
  options.size = static_cast<int>(group.members.size());
  options.rendezvous.clear();
  options.store = &meeting;
  rendezvous::Place place = parent.place();
  place.rank = options.rank;
  place.size = options.size;
  place.url.clear();
  place.source = "split";
  place.deadline = base::after(base::Clock::now(), options.connect_deadline);
  place.constants = parent.constants();
  place.group = fmt::format("{}/{}.{}", parent.place().group, number, group.color);
  return std::make_unique<CommunicatorState>(options, place, parent.factory());
}

}  // namespace

namespace {

std::unique_ptr<CommunicatorState> split_in_groups(CommunicatorState& parent, const Group& group,
                                                   std::uint64_t number) {
  Meeting meeting(parent, group);
  std::unique_ptr<CommunicatorState> result;
  if (group.color >= 0 && !group.members.empty()) {
    try {
      result = join_group(parent, group, meeting, number);
    } catch (const Error& error) {
      if (meeting.exchanged()) throw;
      meeting.exchange(Kind::failure, error.code(), error.what());
      throw;
    } catch (const std::exception& error) {
      if (meeting.exchanged()) throw;
      meeting.exchange(Kind::failure, Errc::system, error.what());
      throw;
    }
  }
  if (!meeting.exchanged()) meeting.exchange(Kind::nothing, {}, {});
  return result;
}

}  // namespace

std::unique_ptr<CommunicatorState> split(CommunicatorState& parent, int color, int key,
                                         std::uint64_t number) {
  parent.refuse_child();
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
