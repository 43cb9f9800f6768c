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
// unless all do that both rings have.
std::size_t count_shifted(const Calls& behind, const Calls& ahead, std::int64_t number) {
  std::size_t compared = 0;
  for (auto call = behind.lower_bound(number); call != behind.end(); ++call) {
    const auto later = ahead.find(call->first + 1);
    if (later == ahead.end()) continue;
    const bool tags = differ(call->second, later->second, "tag");
    if (tags || differ(call->second, later->second, signature_names)) return 0;
    ++compared;
  }
  return compared;
}

// Ranks that made the same call.
struct Party {
  DumpList dumps;
  const DumpCall* call;
};
using Parties = std::vector<Party>;

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
    // Calls may differ in their tags alone, as those of buckets of one size.
    std::int64_t tags_number = 0;
    for (auto number = numbers.lower_bound(first_); number != numbers.end(); ++number) {
      if (tags_number == 0 && parties_of(*number, {"tag"}).size() > 1) tags_number = *number;
      const Parties parties = parties_of(*number, signature_names);
      const DumpList behind = parties.size() > 1 ? DumpList() : behind_at(*number);
      if (parties.size() == 1 && behind.empty()) continue;
      if (tags_number != 0 && tags_number != *number) tell_difference(tags_number, {"tag"});
      if (behind.empty()) return tell_difference(*number, signature_names);
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
      else
        same->dumps.push_back(&dump);
    }
    std::ranges::stable_sort(parties, std::greater<>(),
                             [](const Party& party) { return party.dumps.size(); });
    return parties;
  }

  // Ranks that have not called it although another had waited for long when they wrote their dump.
  DumpList behind_at(std::int64_t number) {
    const Dump* first = nullptr;
    double since = std::numeric_limits<double>::infinity();
    for (const Dump& dump : dumps_)
      if (const auto call = calls_of(dump).find(number); call != calls_of(dump).end() &&
                                                         waited(dump, call->second, dump) > 0 &&
                                                         dump.shift + call->second.begin() < since)
        first = &dump, since = dump.shift + call->second.begin();
    DumpList behind;
    for (const Dump& dump : dumps_) {
      const DumpLane& lane = dump.lanes[lane_];
      if (first == nullptr || lane.last() >= number || lane.line.word().empty()) continue;
      const double time = waited(*first, calls_of(*first).at(number), dump);
      if (time < least_wait) continue;
      behind.push_back(&dump);
      waited_ = std::max(waited_, time);
    }
    return behind;
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
    DumpList others;
    for (const Party& party : parties) {
      if (&party != &most) others.insert(others.end(), party.dumps.begin(), party.dumps.end());
      if (parts.size() < most_parties)
        parts.push_back(words_of(party.dumps) + " called " + describe(*party.call, fields));
    }
    if (parties.size() > most_parties)
      parts.push_back(fmt::format("{} more calls", parties.size() - most_parties));
    const std::string differing =
        fields.empty() ? "" : "; they differ in " + base::join(fields, ", ");
    add("difference", number, others,
        fmt::format("#{} in {}: {}{}", number, dump_lanes[lane_], join(parts), differing));
    tell_shift(number, most, others);
  }

  void tell_shift(std::int64_t number, const Party& most, const DumpList& others) {
    // The ring of the rank that got furthest shows most.
    const Calls& reference = calls_of(**std::ranges::max_element(
        most.dumps, {}, [&](const Dump* dump) { return dump->lanes[lane_].last(); }));
    const auto call = [&](const DumpCall& shown) {
      return number == first_ && number > 1 ? fmt::format("before #{}", number)
                                            : fmt::format("#{}, {}", number, describe(shown));
    };
    // Whether they left the call out, the call, and how many calls show it.
    std::map<std::tuple<bool, std::string, std::size_t>, DumpList> shifted;
    for (const Dump* dump : others) {
      const Calls& own = calls_of(*dump);
      if (const std::size_t count = count_shifted(own, reference, number); count > 0)
        shifted[{true, call(*most.call), count}].push_back(dump);
      else if (const std::size_t more = count_shifted(reference, own, number); more > 0)
        shifted[{false, call(own.at(number)), more}].push_back(dump);
    }
    for (const auto& [what, dumps] : shifted) {
      const auto& [left_out, place, count] = what;
      add(left_out ? "left_out" : "one_more", number, dumps,
          fmt::format("{} {} {}: from #{} on the calls equal those of {} from #{} on ({} compared)",
                      words_of(dumps), left_out ? "left out" : "called one more,", place,
                      left_out ? number : number + 1, words_of(most.dumps),
                      left_out ? number + 1 : number, count));
    }
  }

  void tell_behind(std::int64_t number, const Party& party, const DumpList& behind) {
    std::map<std::string, DumpList> by_last;
    for (const Dump* dump : behind) {
      const std::int64_t last = dump->lanes[lane_].last();
      const auto call = calls_of(*dump).find(last);
      std::string text = last == 0 ? "no call yet" : fmt::format("the last call is #{}", last);
      if (call != calls_of(*dump).end())
        text += ", " + describe(call->second) + ", " + call->second.text("state");
      if (by_last.size() >= most_parties && !by_last.contains(text)) text = "other calls";
      by_last[text].push_back(dump);
    }
    for (const auto& [last, dumps] : by_last)
      add("not_called", number, dumps,
          fmt::format("{} {} not called #{} in {}; {}; {} called it {} before: {}", words_of(dumps),
                      dumps.size() == 1 ? "has" : "have", number, dump_lanes[lane_], last,
                      words_of(party.dumps), format_seconds(waited_), describe(*party.call)));
  }

  void add(const char* kind, std::int64_t number, const DumpList& dumps, std::string text) {
    findings_.push_back({kind, numbers_of(dumps), std::move(text), dump_lanes[lane_], number});
  }

  const Dumps& dumps_;
  const std::size_t lane_;
  TraceFindings& findings_;
  std::int64_t first_ = 0;  // all rings have the calls from here on
  double waited_ = 0;       // the longest wait for a rank that is behind
};

}  // namespace

void find_differences(const Dumps& dumps, TraceFindings& findings) {
  for (std::size_t lane = 0; lane < messages_lane; ++lane) Walk(dumps, lane, findings).run();
}

}  // namespace rondo::tools
