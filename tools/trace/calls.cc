// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include <algorithm>
#include <set>
#include <tuple>

#include "base/text.h"
#include "tools/shared/lists.h"
#include "tools/shared/text.h"
#include "tools/trace/findings.h"

namespace rondo::tools {
namespace {

using Calls = std::map<std::int64_t, DumpCall>;
using DumpList = std::vector<const Dump*>;

constexpr std::size_t most_parties = 8, most_lone = 12;

std::vector<int> numbers_of(const DumpList& dumps) {
  std::vector<int> ranks;
  for (const Dump* dump : dumps) ranks.push_back(dump->rank);
  return ranks;
}

std::string words_of(const DumpList& dumps) {
  return base::list_of_ranks(numbers_of(dumps));
}

// Dumps leave out these two where they have the usual value.
std::string_view signature_value(const DumpCall& call, std::string_view name) {
  const std::string_view value = call.raw(name);
  return !value.empty() ? value : name == "scale" ? "1" : name == "device" ? "0" : value;
}

// A field that one of the two does not know yet is no difference.
bool differ(const DumpCall& one, const DumpCall& other, std::string_view name) {
  const std::string_view value = signature_value(one, name), second = signature_value(other, name);
  return !value.empty() && !second.empty() && value != second;
}

bool differ(const DumpCall& one, const DumpCall& other) {
  return std::ranges::any_of(signature_names,
                             [&](std::string_view name) { return differ(one, other, name); });
}

// How many calls of `behind` from `number` on equal those of `ahead` one number later, tags too; 0
// unless all do that both rings have.
std::size_t count_shifted(const Calls& behind, const Calls& ahead, std::int64_t number) {
  std::size_t compared = 0;
  for (auto call = behind.lower_bound(number); call != behind.end(); ++call) {
    const auto later = ahead.find(call->first + 1);
    if (later == ahead.end()) continue;
    if (differ(call->second, later->second) || differ(call->second, later->second, "tag")) return 0;
    ++compared;
  }
  return compared;
}

// Ranks that made the same call.
struct Party {
  DumpList dumps;
  const DumpCall* call;
};

// Goes through the calls of a lane in the order of their numbers.
class Walk {
 public:
  Walk(const Dumps& dumps, std::size_t lane, TraceFindings& findings)
      : dumps_(dumps), lane_(lane), findings_(findings) {}

  void run() {
    std::set<std::int64_t> numbers;
    for (const Dump& dump : dumps_) {
      if (calls_of(dump).empty()) continue;
      first_ = std::max(first_, calls_of(dump).begin()->first);
      for (const auto& call : calls_of(dump)) numbers.insert(call.first);
    }
    for (auto number = numbers.lower_bound(first_); number != numbers.end(); ++number)
      if (finds(*number)) return;
  }

 private:
  const Calls& calls_of(const Dump& dump) const { return dump.lanes[lane_].calls; }

  bool finds(std::int64_t number) {
    std::vector<Party> parties;
    DumpList behind;
    bool waits = false;
    for (const Dump& dump : dumps_) {
      const auto call = calls_of(dump).find(number);
      if (call == calls_of(dump).end()) {
        if (dump.lanes[lane_].last() < number) behind.push_back(&dump);
        continue;
      }
      waits |= call->second.waits();
      const auto same = std::ranges::find_if(
          parties, [&](const Party& party) { return !differ(*party.call, call->second); });
      if (same == parties.end())
        parties.push_back({{&dump}, &call->second});
      else
        same->dumps.push_back(&dump);
    }
    std::ranges::stable_sort(parties, std::greater<>(),
                             [](const Party& party) { return party.dumps.size(); });
    if (parties.size() > 1)
      tell_difference(number, parties);
    else if (waits && !behind.empty())
      tell_behind(number, parties.front(), behind);
    return parties.size() > 1 || (waits && !behind.empty());
  }

  void tell_difference(std::int64_t number, const std::vector<Party>& parties) {
    const Party& most = parties.front();
    std::vector<std::string_view> fields;
    for (const std::string_view name : signature_names)
      if (std::ranges::any_of(
              parties, [&](const Party& each) { return differ(*most.call, *each.call, name); }))
        fields.push_back(name);
    // Other fields say nothing more when the operations differ.
    const bool same_name = fields.front() != signature_names.front();
    std::vector<std::string> parts;
    DumpList others;
    for (const Party& party : parties) {
      if (&party != &most) others.insert(others.end(), party.dumps.begin(), party.dumps.end());
      if (parts.size() < most_parties)
        parts.push_back(words_of(party.dumps) + " called " +
                        describe(*party.call, same_name ? fields : decltype(fields)()));
    }
    if (parties.size() > most_parties)
      parts.push_back(fmt::format("{} more calls", parties.size() - most_parties));
    add("difference", number, others,
        fmt::format("#{} in {}: {}{}", number, dump_lanes[lane_], join(parts),
                    same_name ? "; they differ in " + base::join(fields, ", ") : ""));
    tell_shift(number, most, others);
  }

  void tell_shift(std::int64_t number, const Party& most, const DumpList& others) {
    // The ring of the rank that got furthest shows most.
    const Calls& reference = calls_of(**std::ranges::max_element(
        most.dumps, {}, [&](const Dump* dump) { return dump->lanes[lane_].last(); }));
    // Whether they left the call out, the call, and how many calls show it.
    std::map<std::tuple<bool, std::string, std::size_t>, DumpList> shifted;
    for (const Dump* dump : others) {
      const Calls& own = calls_of(*dump);
      if (const std::size_t count = count_shifted(own, reference, number); count > 0)
        shifted[{true, describe(*most.call), count}].push_back(dump);
      else if (const std::size_t more = count_shifted(reference, own, number); more > 0)
        shifted[{false, describe(own.at(number)), more}].push_back(dump);
    }
    for (const auto& [what, dumps] : shifted) {
      const auto& [left_out, call, count] = what;
      add(left_out ? "left_out" : "one_more", number, dumps,
          fmt::format("{} {} #{}, {}: from #{} on the calls equal those of {} from #{} on ({} "
                      "compared)",
                      words_of(dumps), left_out ? "left out" : "called one more,", number, call,
                      left_out ? number : number + 1, words_of(most.dumps),
                      left_out ? number + 1 : number, count));
    }
  }

  void tell_behind(std::int64_t number, const Party& party, const DumpList& behind) {
    std::map<std::string, DumpList> by_last;
    for (const Dump* dump : behind) {
      const std::int64_t last = dump->lanes[lane_].last();
      const auto call = calls_of(*dump).find(last);
      const std::string known =
          call == calls_of(*dump).end()
              ? ""
              : ", " + describe(call->second) + ", " + call->second.text("state");
      if (by_last.size() < most_parties)
        by_last[last == 0 ? "it has no call yet"
                          : fmt::format("the last call is #{}{}", last, known)]
            .push_back(dump);
    }
    const std::string since = format_seconds(-party.call->begin());
    for (const auto& [last, dumps] : by_last)
      add("not_called", number, dumps,
          fmt::format("{} {} not called #{} in {}; {}. {} called it {} before: {}", words_of(dumps),
                      dumps.size() == 1 ? "has" : "have", number, dump_lanes[lane_], last,
                      words_of(party.dumps), since, describe(*party.call)));
    tell_tags(number, party, behind);
  }

  // Calls may differ in their tags alone, as those of buckets of one size.
  void tell_tags(std::int64_t end, const Party& party, const DumpList& behind) {
    const Calls& reference = calls_of(*party.dumps.front());
    for (const Dump* dump : behind)
      for (auto call = reference.lower_bound(first_); call != reference.end() && call->first < end;
           ++call) {
        const auto own = calls_of(*dump).find(call->first);
        if (own == calls_of(*dump).end() || !differ(own->second, call->second, "tag")) continue;
        tell_shift(call->first, {party.dumps, &call->second}, {dump});
        break;
      }
  }

  void add(const char* kind, std::int64_t number, const DumpList& dumps, std::string text) {
    findings_.push_back({kind, numbers_of(dumps), std::move(text), dump_lanes[lane_], number});
  }

  const Dumps& dumps_;
  const std::size_t lane_;
  TraceFindings& findings_;
  std::int64_t first_ = 0;  // all rings have the calls from here on
};

// The sends, or the receives, of one sender, receiver and key.
struct MessageSide {
  std::size_t all = 0, done = 0, waiting = 0;
  double since = 0;

  // Those that wait without a partner on the other side.
  std::size_t lone(const MessageSide& other) const {
    return waiting - std::min(waiting, other.all - std::min(other.all, done));
  }
};
using MessagePair = std::tuple<int, int, std::string>;  // from (-1: any rank), to, key

void tell_lone(const Dumps& dumps, const MessagePair& pair, bool sends, const MessageSide& own,
               const MessageSide& other, TraceFindings& findings) {
  const auto& [from, to, key] = pair;
  const int rank = sends ? from : to, peer = sends ? to : from;
  if (own.lone(other) == 0 || rank < 0) return;
  const std::size_t lone = own.lone(other);
  const std::string of = peer < 0 ? "any rank" : fmt::format("rank {}", peer);
  const char* missing = sends ? "receive" : "send";
  const bool there = peer < 0 || std::ranges::binary_search(dumps, peer, {}, &Dump::rank);
  findings.push_back(
      {sends ? "no_receive" : "no_send",
       {rank},
       fmt::format("rank {} waits in {} {}{} {} (key {}, {}); {}; {} pairs matched", rank,
                   lone == 1 ? "a" : std::to_string(lone), sends ? "send" : "receive",
                   lone == 1 ? "" : "s", (sends ? "to " : "from ") + of, key,
                   format_seconds(own.since),
                   !there     ? "there is no file of " + of
                   : peer < 0 ? fmt::format("no rank has called a {} for it", missing)
                              : fmt::format("{} has not called a {} for it", of, missing),
                   std::min(own.done, other.all)),
       dump_lanes[messages_lane]});
}

}  // namespace

void find_differences(const Dumps& dumps, TraceFindings& findings) {
  for (std::size_t lane = 0; lane < messages_lane; ++lane) Walk(dumps, lane, findings).run();
}

void find_lone_messages(const Dumps& dumps, TraceFindings& findings) {
  // Receivers that take a key from any rank: which sends they took is not known.
  std::set<std::pair<int, std::string>> any;
  std::map<MessagePair, std::array<MessageSide, 2>> pairs;
  const auto for_each = [&](auto function) {
    for (const Dump& dump : dumps)
      for (const auto& each : dump.lanes[messages_lane].calls)
        if (const std::string_view name = each.second.raw("name");
            name == "send" || name == "receive")
          function(dump.rank, each.second, each.second.text("key"), name == "send");
  };
  for_each([&](int rank, const DumpCall& call, const std::string& key, bool sends) {
    if (!sends && call.rank("peer") < 0) any.emplace(rank, key);
  });
  for_each([&](int rank, const DumpCall& call, const std::string& key, bool sends) {
    const int to = sends ? call.rank("peer") : rank, from = sends ? rank : call.rank("peer");
    MessageSide& side = pairs[{any.contains({to, key}) ? -1 : from, to, key}][sends ? 1 : 0];
    ++side.all;
    if (call.done()) ++side.done;
    if (!call.waits()) return;
    ++side.waiting;
    side.since = std::max(side.since, -call.begin());
  });
  const std::size_t before = findings.size();
  for (const auto& [pair, sides] : pairs)
    for (const bool sends : {false, true})
      tell_lone(dumps, pair, sends, sides[sends ? 1 : 0], sides[sends ? 0 : 1], findings);
  if (findings.size() <= before + most_lone) return;
  const std::size_t more = findings.size() - before - most_lone;
  findings.resize(before + most_lone);
  findings.push_back(
      {"more", {}, fmt::format("{} more messages wait so", more), dump_lanes[messages_lane]});
}

}  // namespace rondo::tools
