// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>
#include <rondo/version.h>

#include <algorithm>
#include <numeric>

#include "base/text.h"
#include "base/traits.h"
#include "tools/shared/lists.h"
#include "tools/trace/findings.h"

namespace rondo::tools {
namespace {

// torchfrtrace ends with an AssertionError at a name that it does not know.
std::string torch_name(Collective operation) {
  switch (operation) {
    case Collective::all_gather:
      return "_all_gather_base";
    case Collective::reduce_scatter:
      return "_reduce_scatter_base";
    case Collective::all_to_all:
      return "all_to_all_single";
    default:
      return std::string(base::traits_of(operation).name);
  }
}

// Whether it is known which messages pair: without the oldest one, whose number is 1, it is not,
// nor with a batch or a receive from any rank.
bool pairs_messages(const Dump& dump) {
  const DumpLane& lane = dump.lanes[messages_lane];
  return static_cast<std::int64_t>(lane.calls.size()) >= lane.last() &&
         std::ranges::none_of(lane.calls, [](const auto& each) {
           return each.second.raw("name") == "batch" || each.second.raw("peer") == "-1";
         });
}

class TorchTrace {
 public:
  TorchTrace(const Dumps& dumps, const Dump& dump) : dumps_(dumps), dump_(dump) {}

  void add_lane(std::size_t lane, std::vector<std::string>& left_out) {
    std::vector<int> ranks(static_cast<std::size_t>(dump_.written.rank("size")));
    std::iota(ranks.begin(), ranks.end(), 0);
    const std::string group(dump_lanes[lane]);
    add_group(group, ranks);
    std::int64_t first = 0;
    for (const Dump& dump : dumps_) {
      const auto& calls = dump.lanes[lane].calls;
      first = std::max(first, calls.empty() ? dump.lanes[lane].last() + 1 : calls.begin()->first);
    }
    const auto& calls = dump_.lanes[lane].calls;
    for (auto each = calls.lower_bound(first); each != calls.end(); ++each) {
      const auto& [number, call] = *each;
      const auto operation = parse_collective(call.text("name"));
      if (!operation || base::traits_of(*operation).messages) {
        add_once(left_out, call.text("name"));
        continue;
      }
      const base::Traits& traits = base::traits_of(*operation);
      const std::size_t blocks = traits.counts_one_block() ? ranks.size() : 1;
      add_entry(call, group, torch_name(*operation), number, false, traits.scatters() ? blocks : 1,
                traits.gathers() ? blocks : 1);
    }
  }

  // Returns whether it can be paired. The messages of one sender, receiver and key are a group,
  // whose ranks are 0 and 1 in it.
  bool add_message(const DumpCall& call) {
    const bool sends = call.raw("name") == "send";
    const int peer = call.rank("peer"), from = sends ? dump_.rank : peer,
              to = sends ? peer : dump_.rank;
    const Dump* const other = find_dump(dumps_, peer);
    if ((!sends && call.raw("name") != "receive") || from == to || other == nullptr ||
        !pairs_messages(*other) || !pairs_messages(dump_))
      return false;
    const std::string group = fmt::format("{}->{} key {}", from, to, call.text("key"));
    add_group(group, {std::min(from, to), std::max(from, to)});
    const int source = from < to ? 0 : 1;
    add_entry(call, group,
              sends ? fmt::format("send {}->{}", source, 1 - source)
                    : fmt::format("recv {}<-{}", 1 - source, source),
              ++messages_[group], true);
    return true;
  }

  Json take() {
    std::ranges::stable_sort(entries_, {}, [](const auto& entry) { return entry.first; });
    Json entries = Json::array();
    for (auto& [time, entry] : entries_) {
      entry["record_id"] = entries.size();
      entries.push_back(std::move(entry));
    }
    return {{"version", "2.10"},
            {"comm_lib_version", fmt::format("rondo {}", version())},
            {"pg_config", std::move(groups_)},
            {"pg_status", Json::object()},
            {"entries", std::move(entries)}};
  }

 private:
  void add_group(const std::string& name, const std::vector<int>& ranks) {
    groups_[name] = {
        {"name", name}, {"desc", "rondo"}, {"ranks", fmt::format("[{}]", base::join(ranks, ", "))}};
  }

  void add_entry(const DumpCall& call, const std::string& group, const std::string& name,
                 std::int64_t number, bool message, std::size_t blocks_in = 1,
                 std::size_t blocks_out = 1) {
    const auto sizes = [&](std::size_t blocks) {  // for a false count the product may overflow
      return Json::array(
          {Json::array({static_cast<std::uint64_t>(call.number("count")) * blocks})});
    };
    const Json types = Json::array({call.text("type")});
    const char* const state = call.done()        ? "completed"
                              : call.has("sent") ? "started"
                                                 : "scheduled";
    const auto ended = call.done() ? call.seconds("ended") : std::nullopt;
    entries_.emplace_back(call.begin(),
                          Json{{"process_group", Json::array({group, "rondo"})},
                               {"profiling_name", "c10d:" + name},
                               {"collective_seq_id", number},
                               {"p2p_seq_id", message ? number : 0},
                               {"is_p2p", message},
                               {"input_sizes", sizes(blocks_in)},
                               {"output_sizes", sizes(blocks_out)},
                               {"input_dtypes", types},
                               {"output_dtypes", types},
                               {"state", state},
                               {"time_created_ns", nanoseconds(call.begin())},
                               {"time_discovered_started_ns", nanoseconds(call.seconds("sent"))},
                               {"time_discovered_completed_ns", nanoseconds(ended)},
                               {"retired", call.done()},
                               {"frames", Json::array()}});
  }

  // Since 1970, by the wall clock of the first dump.
  Json nanoseconds(std::optional<double> time) const {
    if (!time) return {};
    return dumps_.front().time * 1000 + static_cast<std::int64_t>((*time + dump_.shift) * 1e9);
  }

  const Dumps& dumps_;
  const Dump& dump_;
  Json groups_ = Json::object();
  std::map<std::string, std::int64_t> messages_;  // of a group, so far
  std::vector<std::pair<double, Json>> entries_;
};

void add_number(std::uint64_t value, std::size_t bytes, std::string& text) {
  for (std::size_t i = 0; i < bytes; ++i) text += static_cast<char>(value >> 8 * i & 0xff);
}

// Opcodes as in Python's pickletools.
void add_pickle(const Json& value, std::string& text) {
  if (value.is_object()) {
    text += "}(";
    for (const auto& [name, member] : value.items()) {
      add_pickle(name, text);
      add_pickle(member, text);
    }
    text += 'u';
  } else if (value.is_array()) {
    text += "](";
    for (const Json& element : value) add_pickle(element, text);
    text += 'e';
  } else if (value.is_string()) {
    const auto& string = value.get_ref<const std::string&>();
    text += 'X';
    add_number(string.size(), 4, text);
    text += string;
  } else if (value.is_number_integer()) {
    text += "\x8a\x08";
    add_number(static_cast<std::uint64_t>(value.get<std::int64_t>()), 8, text);
  } else {
    text += value.is_null() ? 'N' : value.get<bool>() ? '\x88' : '\x89';
  }
}

}  // namespace

Json torch_trace(const Dumps& dumps, const Dump& dump, std::vector<std::string>& left_out) {
  TorchTrace trace(dumps, dump);
  for (std::size_t lane = 0; lane < messages_lane; ++lane) trace.add_lane(lane, left_out);
  for (const auto& [number, call] : dump.lanes[messages_lane].calls)
    if (!trace.add_message(call)) add_once(left_out, call.text("name"));
  return trace.take();
}

std::string pickle(const Json& value) {
  std::string text = "\x80\x02";
  add_pickle(value, text);
  return text + '.';
}

}  // namespace rondo::tools
