// SPDX-License-Identifier: Apache-2.0
#include "tools/trace/calls.h"

#include <fmt/format.h>

#include <algorithm>
#include <set>
#include <tuple>

#include "base/text.h"
#include "tools/shared/lists.h"
#include "tools/shared/text.h"

namespace rondo::tools {
namespace {

using Calls = std::map<std::uint64_t, DumpedCall>;
using Dumps = std::vector<const Dump*>;

constexpr std::size_t most_parties = 8, most_lone = 12;

std::vector<int> ranks_of(const Dumps& dumps) {
  std::vector<int> ranks;
  for (const Dump* dump : dumps) ranks.push_back(dump->rank);
  return ranks;
}

std::string words_of(const Dumps& dumps) {
  return base::list_of_ranks(ranks_of(dumps));
}

// A field that one of the two does not know yet is no difference.
std::vector<std::string_view> differing_fields(const DumpedCall& one, const DumpedCall& other) {
  std::vector<std::string_view> names;
  for (std::size_t i = 0; i < signature_names.size(); ++i)
    if (!one.signature[i].empty() && !other.signature[i].empty() &&
        one.signature[i] != other.signature[i])
      names.push_back(signature_names[i]);
  return names;
}

bool equal(const DumpedCall& one, const DumpedCall& other) {
  return differing_fields(one, other).empty() &&
         (one.tag.empty() || other.tag.empty() || one.tag == other.tag);
}

// How many calls of `behind` from `number` on equal those of `ahead` one number later; 0 unless all
// do that both rings have.
std::size_t count_shifted(const Calls& behind, const Calls& ahead, std::uint64_t number) {
  std::size_t compared = 0;
  for (auto call = behind.lower_bound(number); call != behind.end(); ++call) {
    const auto later = ahead.find(call->first + 1);
    if (later == ahead.end()) continue;
    if (!equal(call->second, later->second)) return 0;
    ++compared;
  }
  return compared;
}

const Calls& calls_of(const Dump& dump, std::size_t lane) {
  return dump.lanes[lane].calls;
}

// The ranks that made the same call.
struct Party {
  Dumps dumps;
  const DumpedCall* call;
};

class Walk {
 public:
  Walk(const std::vector<Dump>& dumps, std::size_t lane, TraceFindings& findings)
      : lane_(lane), findings_(findings) {
    for (const Dump& dump : dumps) {
      all_.push_back(&dump);
      const Calls& calls = calls_of(dump, lane);
      if (calls.empty()) continue;
      first_ = std::max(first_, calls.begin()->first);
      for (const auto& call : calls) numbers_.insert(call.first);
    }
  }

  void run() {
    for (auto number = numbers_.lower_bound(first_); number != numbers_.end(); ++number)
      if (finds(*number)) return;
  }

 private:
  bool finds(std::uint64_t number) {
    std::vector<Party> parties;
    Dumps behind;
    bool waits = false;
    for (const Dump* dump : all_) {
      const auto call = calls_of(*dump, lane_).find(number);
      if (call == calls_of(*dump, lane_).end()) {
        if (dump->lanes[lane_].last() < number) behind.push_back(dump);
        continue;
      }
      waits |= call->second.waits();
      const auto same = std::ranges::find_if(parties, [&](const Party& party) {
        return differing_fields(*party.call, call->second).empty();
      });
      if (same == parties.end())
        parties.push_back({{dump}, &call->second});
      else
        same->dumps.push_back(dump);
    }
    std::ranges::stable_sort(
        parties, [](const Party& a, const Party& b) { return a.dumps.size() > b.dumps.size(); });
    if (parties.size() > 1) return tell_difference(number, parties), true;
    if (behind.empty() || !waits) return false;
    return tell_behind(number, parties.front(), behind), true;
  }

  void tell_difference(std::uint64_t number, const std::vector<Party>& parties) {
    std::vector<std::string_view> fields;
    for (const Party& party : parties)
      for (const std::string_view name : differing_fields(*parties.front().call, *party.call))
        add_once(fields, name);
    std::vector<std::string> parts;
    for (const Party& party : parties) {
      if (parts.size() == most_parties) {
        parts.push_back(fmt::format("{} more groups of ranks", parties.size() - most_parties));
        break;
      }
      parts.push_back(
          fmt::format("{} called {}", words_of(party.dumps), describe(*party.call, fields)));
    }
    Dumps others;
    for (auto party = parties.begin() + 1; party != parties.end(); ++party)
      others.insert(others.end(), party->dumps.begin(), party->dumps.end());
    add("difference", number, others,
        fmt::format("#{} in {}: {}; they differ in {}", number, lane_names[lane_], join(parts),
                    base::join(fields, ", ")));
    for (auto party = parties.begin() + 1; party != parties.end(); ++party)
      tell_shift(number, parties.front(), party->dumps, *party->call);
  }

  // The ring of the rank that got furthest shows most.
  const Dump& furthest(const Party& party) const {
    return **std::ranges::max_element(party.dumps, {},
                                      [&](const Dump* dump) { return dump->lanes[lane_].last(); });
  }

  void tell_shift(std::uint64_t number, const Party& most, const Dumps& others,
                  const DumpedCall& call) {
    const Calls& reference = calls_of(furthest(most), lane_);
    for (const bool left_out : {true, false}) {
      Dumps shifted;
      std::size_t compared = 0;
      for (const Dump* dump : others) {
        const Calls& own = calls_of(*dump, lane_);
        const std::size_t count = left_out ? count_shifted(own, reference, number)
                                           : count_shifted(reference, own, number);
        if (count == 0) continue;
        shifted.push_back(dump);
        compared = std::max(compared, count);
      }
      if (shifted.empty()) continue;
      const std::string who = words_of(shifted), rest = words_of(most.dumps);
      const std::string tail = fmt::format("({} compared)", compared);
      if (left_out)
        add("left_out", number, shifted,
            fmt::format(
                "{} left out #{}, {}: from #{} on the calls equal those of {} from #{} on {}", who,
                number, describe(*most.call), number, rest, number + 1, tail));
      else
        add("one_more", number, shifted,
            fmt::format("{} called one more, {} as #{}: from #{} on the calls equal those of {} "
                        "from #{} on {}",
                        who, describe(call), number, number + 1, rest, number, tail));
      return;
    }
  }

  void tell_behind(std::uint64_t number, const Party& party, const Dumps& behind) {
    std::map<std::string, Dumps> by_last;
    for (const Dump* dump : behind) {
      const DumpedLane& lane = dump->lanes[lane_];
      const auto call = lane.calls.find(lane.last());
      by_last[lane.last() == 0           ? "no call yet"
              : call == lane.calls.end() ? fmt::format("its last call is #{}", lane.last())
                                         : fmt::format("its last call is #{}, {}, {}", lane.last(),
                                                       describe(call->second), call->second.state)]
          .push_back(dump);
    }
    std::vector<std::string> lasts;
    for (const auto& [text, dumps] : by_last) {
      if (lasts.size() == most_parties) break;
      lasts.push_back(by_last.size() == 1 ? text : fmt::format("{}: {}", words_of(dumps), text));
    }
    const double since = -party.call->called.value_or(0);
    add("not_called", number, behind,
        fmt::format("{} {} not called #{} in {}; {}. {} called it{}: {}", words_of(behind),
                    behind.size() == 1 ? "has" : "have", number, lane_names[lane_],
                    join(lasts, "; "), words_of(party.dumps),
                    since > 0 ? fmt::format(" {} before", format_seconds(since)) : "",
                    describe(*party.call)));
    tell_tags(number, party, behind);
  }

  // Calls that are equal but for their tags, as those of buckets of one size.
  void tell_tags(std::uint64_t number, const Party& party, const Dumps& behind) {
    const Calls& reference = calls_of(furthest(party), lane_);
    for (auto call = reference.lower_bound(first_); call != reference.end(); ++call) {
      if (call->first >= number) return;
      Dumps others;
      for (const Dump* dump : behind) {
        const auto own = calls_of(*dump, lane_).find(call->first);
        if (own != calls_of(*dump, lane_).end() && !equal(own->second, call->second))
          others.push_back(dump);
      }
      if (!others.empty())
        return tell_shift(call->first, {party.dumps, &call->second}, others, call->second);
    }
  }

  void add(const char* kind, std::uint64_t number, const Dumps& dumps, std::string text) {
    findings_.push_back(
        {kind, ranks_of(dumps), std::move(text), std::string(lane_names[lane_]), number});
  }

  const std::size_t lane_;
  TraceFindings& findings_;
  Dumps all_;
  std::set<std::uint64_t> numbers_;
  std::uint64_t first_ = 0;
};

// Messages from one rank to another with one key. from -1: from any rank.
using Pair = std::tuple<int, int, std::int64_t>;
struct MessageSide {
  std::uint64_t all = 0, done = 0, waiting = 0;
  double waited = 0;

  void add(const DumpedCall& call) {
    ++all;
    done += call.done() ? 1 : 0;
    if (!call.waits()) return;
    ++waiting;
    waited = std::max(waited, -call.called.value_or(0));
  }
  // Those that wait and for which the other side has no partner.
  std::uint64_t lone(const MessageSide& other) const {
    return waiting - std::min(waiting, other.all - std::min(other.all, done));
  }
};
struct Messages {
  MessageSide sends, receives;
};

}  // namespace

void find_differences(const std::vector<Dump>& dumps, TraceFindings& findings) {
  for (std::size_t lane = 0; lane < messages_lane; ++lane) Walk(dumps, lane, findings).run();
}

void find_lone_messages(const std::vector<Dump>& dumps, TraceFindings& findings) {
  std::set<int> there;
  std::set<std::pair<int, std::int64_t>> any;  // receivers that take a key from any rank
  const auto for_each = [&](auto function) {
    for (const Dump& dump : dumps)
      for (const auto& [number, call] : calls_of(dump, messages_lane))
        if (call.peer && (call.name() == "send" || call.name() == "receive"))
          function(dump.rank, call, call.key.value_or(0), call.name() == "send");
  };
  for (const Dump& dump : dumps) there.insert(dump.rank);
  for_each([&](int rank, const DumpedCall& call, std::int64_t key, bool sends) {
    if (!sends && *call.peer < 0) any.emplace(rank, key);
  });
  std::map<Pair, Messages> pairs;
  for_each([&](int rank, const DumpedCall& call, std::int64_t key, bool sends) {
    const int to = sends ? *call.peer : rank, from = sends ? rank : *call.peer;
    Messages& messages = pairs[{any.contains({to, key}) ? -1 : from, to, key}];
    (sends ? messages.sends : messages.receives).add(call);
  });
  std::size_t told = 0;
  for (const auto& [pair, messages] : pairs) {
    const auto [from, to, key] = pair;
    for (const bool sends : {false, true}) {
      const MessageSide& own = sends ? messages.sends : messages.receives;
      const MessageSide& other = sends ? messages.receives : messages.sends;
      const int rank = sends ? from : to, peer = sends ? to : from;
      const std::uint64_t lone = own.lone(other);
      if (lone == 0 || rank < 0 || ++told > most_lone) continue;
      const std::string of = peer < 0 ? "any rank" : fmt::format("rank {}", peer);
      const std::string lacks =
          peer >= 0 && !there.contains(peer)
              ? "there is no file of that rank"
              : fmt::format("the file of {} has no matching {}", of, sends ? "receive" : "send");
      findings.push_back(
          {sends ? "no_receive" : "no_send",
           {rank},
           fmt::format("rank {} waits in {} {} {} {} (key {}){}: {}; {} pairs matched", rank, lone,
                       sends ? "send" : "receive", sends ? "to" : "from", of, key,
                       own.waited > 0 ? " for " + format_seconds(own.waited) : "", lacks,
                       std::min(own.done, other.all)),
           std::string(lane_names[messages_lane]),
           {}});
    }
  }
  if (told > most_lone)
    findings.push_back({"more",
                        {},
                        fmt::format("{} more pairs of ranks wait so", told - most_lone),
                        std::string(lane_names[messages_lane]),
                        {}});
}

}  // namespace rondo::tools
