// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include <algorithm>
#include <limits>
#include <set>
#include <tuple>

#include "base/text.h"
#include "tools/shared/text.h"
#include "tools/trace/findings.h"

namespace rondo::tools {
namespace {

using Calls = std::map<std::int64_t, DumpCall>;
using DumpList = std::vector<const Dump*>;
using FieldNames = std::vector<std::string_view>;

constexpr std::size_t most_parties = 8;

// The fields in which the calls of all ranks agree.
const FieldNames signature_names{"name",  "type",   "count",     "op",  "root",
                                 "scale", "device", "algorithm", "plan"};

std::vector<int> numbers_of(const DumpList& dumps) {
  std::vector<int> ranks;
  for (const Dump* dump : dumps) ranks.push_back(dump->rank);
  return ranks;
}

std::string words_of(const DumpList& dumps) {
  return base::list_of_ranks(numbers_of(dumps));
}

// A field that one of the two does not know yet is no difference. Dumps leave out two of them where
// they have the usual value.
bool differ(const DumpCall& one, const DumpCall& other, std::string_view name) {
  const auto value_of = [&](const DumpCall& call) {
    const std::string_view value = call.raw(name);
    return !value.empty() ? value : name == "scale" ? "1" : name == "device" ? "0" : value;
  };
  const std::string_view value = value_of(one), second = value_of(other);
  return !value.empty() && !second.empty() && value != second;
}

bool differ(const DumpCall& one, const DumpCall& other, const FieldNames& names) {
  return std::ranges::any_of(names,
                             [&](std::string_view name) { return differ(one, other, name); });
}

// How many calls of `behind` from `number` on equal those of `ahead` one number later, tags too; 0
// unless all do that both rings have. One call without a tag shows nothing.
std::size_t count_shifted(const Calls& behind, const Calls& ahead, std::int64_t number) {
  std::size_t compared = 0;
  bool tagged = false;
  for (auto call = behind.lower_bound(number); call != behind.end(); ++call) {
    const auto later = ahead.find(call->first + 1);
    if (later == ahead.end()) continue;
    const bool tags = differ(call->second, later->second, "tag");
    if (tags || differ(call->second, later->second, signature_names)) return 0;
    ++compared;
    tagged |= later->second.has("tag");
  }
  return compared > 1 || tagged ? compared : 0;
}

// Ranks that made the same call.
struct Party {
  DumpList dumps;
  const DumpCall* call;
};
using Parties = std::vector<Party>;
// Whether ranks left the call out, the call, and how many calls show it.
using Shifts = std::map<std::tuple<bool, std::string, std::size_t>, DumpList>;

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
      for (const auto& [number, call] : calls_of(dump)) {
        numbers.insert(number);
        if (!call.done()) oldest_.try_emplace(&dump, number);
      }
    }
    // Calls may differ in their tags alone, as those of buckets of one size.
    std::int64_t tags_number = 0;
    for (auto number = numbers.lower_bound(first_); number != numbers.end(); ++number) {
      const Parties tags = parties_of(*number, {"tag"});
      if (tags.size() > 1 && tags_number == 0) tags_number = *number;
      tags_agree_ |= tags.size() == 1 && tags.front().call->has("tag");
      const Parties parties = parties_of(*number, signature_names);
      const DumpList behind = behind_at(*number);
      if (parties.size() == 1 && behind.empty()) continue;
      if (tags_number != 0 && (parties.size() == 1 || tags_number != *number))
        tell_difference(tags_number, {"tag"});
      if (parties.size() > 1) tell_difference(*number, signature_names);
      return tell_behind(*number, parties.front(), behind);
    }
    if (tags_number != 0) tell_difference(tags_number, {"tag"});
  }

 private:
  const Calls& calls_of(const Dump& dump) const { return dump.lanes[lane_].calls; }

  // The largest first.
  Parties parties_of(std::int64_t number, const FieldNames& names) const {
    Parties parties;
    for (const Dump& dump : dumps_) {
      const auto call = calls_of(dump).find(number);
      if (call == calls_of(dump).end()) continue;
      const auto same = std::ranges::find_if(
          parties, [&](const Party& party) { return !differ(*party.call, call->second, names); });
      if (same == parties.end())
        parties.push_back({{&dump}, &call->second});
      else {
        same->dumps.push_back(&dump);
        if (!same->call->has(names.back())) same->call = &call->second;  // it knows more
      }
    }
    std::ranges::stable_sort(parties, std::greater<>(),
                             [](const Party& party) { return party.dumps.size(); });
    return parties;
  }

  // Ranks that have not called it although another had waited in it for long when they wrote their
  // dump. A rank waits in the oldest call that has not ended.
  DumpList behind_at(std::int64_t number) {
    waiter_ = nullptr;
    double since = std::numeric_limits<double>::infinity();
    for (const Dump& dump : dumps_) {
      const auto call = calls_of(dump).find(number);
      if (call == calls_of(dump).end() || oldest_[&dump] != number ||
          waited(dump, call->second, dump) <= 0 || dump.shift + call->second.begin() >= since)
        continue;
      waiter_ = &dump;
      since = dump.shift + call->second.begin();
    }
    DumpList behind;
    for (const Dump& dump : dumps_) {
      const DumpLane& lane = dump.lanes[lane_];
      if (waiter_ == nullptr || lane.last() >= number || lane.line.word().empty()) continue;
      if (time_behind(number, dump) >= least_wait) behind.push_back(&dump);
    }
    return behind;
  }

  double time_behind(std::int64_t number, const Dump& dump) const {
    return waited(*waiter_, calls_of(*waiter_).at(number), dump);
  }

  void tell_difference(std::int64_t number, const FieldNames& names) {
    const Parties parties = parties_of(number, names);
    const Party& most = parties.front();
    FieldNames fields;
    for (const std::string_view name : names)
      if (std::ranges::any_of(
              parties, [&](const Party& each) { return differ(*most.call, *each.call, name); }))
        fields.push_back(name);
    // Other fields say nothing more when the operations differ, nor do those that follow from them.
    if (fields.front() == "name") fields.clear();
    while (fields.size() > 1 && (fields.back() == "plan" || fields.back() == "algorithm"))
      fields.pop_back();
    std::vector<std::string> parts;
    DumpList others, all;
    for (const Party& party : parties) {
      if (&party != &most) others.insert(others.end(), party.dumps.begin(), party.dumps.end());
      all.insert(all.end(), party.dumps.begin(), party.dumps.end());
      if (parts.size() < most_parties)
        parts.push_back(words_of(party.dumps) + " called " + describe(*party.call, fields));
    }
    if (parties.size() > most_parties)
      parts.push_back(fmt::format("{} more calls", parties.size() - most_parties));
    const Shifts shifts = shifts_of(number, most, others);
    // A program may give each rank tags of its own.
    if (names.back() == "tag" && !tags_agree_ && shifts.empty()) return;
    const bool tie = parties[1].dumps.size() == most.dumps.size();  // nobody can tell who is wrong
    const std::string differing =
        fields.empty() ? "" : "; they differ in " + base::join(fields, ", ");
    add("difference", number, tie ? all : others,
        fmt::format("#{} in {}: {}{}", number, dump_lanes[lane_], join(parts), differing));
    tell_shifts(number, most, tie, shifts);
  }

  Shifts shifts_of(std::int64_t number, const Party& most, const DumpList& others) const {
    // The ring of the rank that got furthest shows most.
    const Calls& reference = calls_of(**std::ranges::max_element(
        most.dumps, {}, [&](const Dump* dump) { return dump->lanes[lane_].last(); }));
    const auto call = [&](const DumpCall& shown) {
      return number == first_ && number > 1 ? fmt::format("before #{}", number)
                                            : fmt::format("#{}, {}", number, describe(shown));
    };
    Shifts shifts;
    for (const Dump* dump : others) {
      const Calls& own = calls_of(*dump);
      if (const std::size_t count = count_shifted(own, reference, number); count > 0)
        shifts[{true, call(*most.call), count}].push_back(dump);
      else if (const std::size_t more = count_shifted(reference, own, number); more > 0)
        shifts[{false, call(own.at(number)), more}].push_back(dump);
    }
    return shifts;
  }

  void tell_shifts(std::int64_t number, const Party& most, bool tie, const Shifts& shifts) {
    constexpr std::array<const char*, 2> words{"called one more,", "left out"};
    for (const auto& [what, dumps] : shifts) {
      const auto& [left_out, place, count] = what;
      DumpList ranks = dumps;
      std::string who = fmt::format("{} {}", words_of(dumps), words[left_out]);
      if (tie) {
        ranks.insert(ranks.end(), most.dumps.begin(), most.dumps.end());
        who = fmt::format("{} {}, or {} {}", words_of(dumps),
                          left_out ? "left out" : "called one more", words_of(most.dumps),
                          words[!left_out]);
      }
      add(left_out ? "left_out" : "one_more", number, ranks,
          fmt::format("{} {}: from #{} on the calls of {} equal those of {} from #{} on ({} "
                      "compared)",
                      who, place, left_out ? number : number + 1, words_of(dumps),
                      words_of(most.dumps), left_out ? number + 1 : number, count));
    }
  }

  void tell_behind(std::int64_t number, const Party& party, const DumpList& behind) {
    struct Group {
      DumpList dumps;
      double time = 0;
    };
    std::map<std::string, Group> by_last;
    for (const Dump* dump : behind) {
      const std::int64_t last = dump->lanes[lane_].last();
      const auto call = calls_of(*dump).find(last);
      std::string text = last == 0 ? "no call yet" : fmt::format("the last call is #{}", last);
      if (call != calls_of(*dump).end())
        text += ", " + describe(call->second) + ", " + call->second.text("state");
      if (by_last.size() >= most_parties && !by_last.contains(text)) text = "other calls";
      Group& group = by_last[text];
      group.dumps.push_back(dump);
      group.time = std::max(group.time, time_behind(number, *dump));
    }
    for (const auto& [last, group] : by_last)
      add("not_called", number, group.dumps,
          fmt::format("{} {} not called #{} in {}; {}; {} {}, rank {} {} before: {}",
                      words_of(group.dumps), group.dumps.size() == 1 ? "has" : "have", number,
                      dump_lanes[lane_], last, words_of(party.dumps),
                      party.dumps.size() == 1 ? "has" : "have", waiter_->rank,
                      format_seconds(group.time), describe(*party.call)));
  }

  void add(const char* kind, std::int64_t number, const DumpList& dumps, std::string text) {
    findings_.push_back({kind, numbers_of(dumps), std::move(text), dump_lanes[lane_], number});
  }

  const Dumps& dumps_;
  const std::size_t lane_;
  TraceFindings& findings_;
  std::int64_t first_ = 0;                      // all rings have the calls from here on
  std::map<const Dump*, std::int64_t> oldest_;  // of the calls that have not ended
  bool tags_agree_ = false;                     // in some call
  const Dump* waiter_ = nullptr;
};

}  // namespace

void find_differences(const Dumps& dumps, TraceFindings& findings) {
  for (std::size_t lane = 0; lane < messages_lane; ++lane) Walk(dumps, lane, findings).run();
}

}  // namespace rondo::tools
