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

using Names = std::array<std::pair<std::string_view, std::string_view>, 10>;
constexpr Names torch_types{{{"f64", "Double"},
                             {"f32", "Float"},
                             {"f16", "Half"},
                             {"bf16", "BFloat16"},
                             {"i64", "Long"},
                             {"i32", "Int"},
                             {"i16", "Short"},
                             {"i8", "Char"},
                             {"u8", "Byte"},
                             {"u16", "UInt16"}}};
// Other names are the same. torchfrtrace ends with an AssertionError at a name that it does not
// know.
constexpr Names torch_operations{{{"all_gather", "_all_gather_base"},
                                  {"reduce_scatter", "_reduce_scatter_base"},
                                  {"all_to_all", "all_to_all_single"}}};

std::string translate(const Names& names, const std::string& name) {
  const auto found = std::ranges::find(names, name, [](const auto& each) { return each.first; });
  return found == names.end() ? name : std::string(found->second);
}

// Without the oldest messages, whose number is 1, it is not known which of two ranks pair.
bool has_all_messages(const Dump& dump) {
  const auto& calls = dump.lanes[messages_lane].calls;
  return calls.empty() || static_cast<std::int64_t>(calls.size()) >= calls.rbegin()->first;
}

class TorchTrace {
 public:
  TorchTrace(const Dumps& dumps, const Dump& dump, std::vector<std::string>& left_out)
      : dumps_(dumps), dump_(dump), left_out_(left_out) {
    for (std::size_t lane = 0; lane < messages_lane; ++lane) add_lane(lane);
    for (const auto& each : dump.lanes[messages_lane].calls)
      if (!add_message(each.second)) add_once(left_out_, each.second.text("name"));
    std::ranges::stable_sort(entries_, {}, [](const auto& entry) { return entry.first; });
  }

  Json take() {
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

  void add_lane(std::size_t lane) {
    std::vector<int> ranks(static_cast<std::size_t>(dump_.written.rank("size")));
    std::iota(ranks.begin(), ranks.end(), 0);
    add_group(std::string(dump_lanes[lane]), ranks);
    std::int64_t first = 0;
    for (const Dump& dump : dumps_)
      if (const auto& calls = dump.lanes[lane].calls; !calls.empty())
        first = std::max(first, calls.begin()->first);
    const auto& calls = dump_.lanes[lane].calls;
    for (auto each = calls.lower_bound(first); each != calls.end(); ++each) {
      const std::string name = each->second.text("name");
      const auto operation = parse_collective(name);
      if (!operation || base::traits_of(*operation).messages) {
        add_once(left_out_, name);
        continue;
      }
      const base::Traits& traits = base::traits_of(*operation);
      const std::size_t blocks = traits.counts_one_block() ? ranks.size() : 1;
      add_entry(each->second, std::string(dump_lanes[lane]), translate(torch_operations, name),
                traits.scatters() ? blocks : 1, traits.gathers() ? blocks : 1, each->first, false);
    }
  }

  // Returns whether it can be paired. The messages of one sender, receiver and key are a group,
  // whose ranks are 0 and 1 in it.
  bool add_message(const DumpCall& call) {
    const bool sends = call.raw("name") == "send";
    const int peer = call.rank("peer"), from = sends ? dump_.rank : peer,
              to = sends ? peer : dump_.rank;
    const auto other = std::ranges::find(dumps_, peer, &Dump::rank);
    if ((!sends && call.raw("name") != "receive") || from == to || other == dumps_.end() ||
        !has_all_messages(*other) || !has_all_messages(dump_))
      return false;
    const std::string group = fmt::format("{}->{} key {}", from, to, call.text("key"));
    add_group(group, {std::min(from, to), std::max(from, to)});
    const int source = from < to ? 0 : 1;
    add_entry(call, group,
              sends ? fmt::format("send {}->{}", source, 1 - source)
                    : fmt::format("recv {}<-{}", 1 - source, source),
              1, 1, ++messages_[group], true);
    return true;
  }

  void add_entry(const DumpCall& call, const std::string& group, const std::string& name,
                 std::size_t blocks_in, std::size_t blocks_out, std::int64_t number, bool message) {
    const auto sizes = [&](std::size_t blocks) {  // for a false count the product may overflow
      return Json::array(
          {Json::array({static_cast<std::uint64_t>(call.number("count")) * blocks})});
    };
    const Json types = Json::array({translate(torch_types, call.text("type"))});
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
                               {"state", call.done()        ? "completed"
                                         : call.has("sent") ? "started"
                                                            : "scheduled"},
                               {"time_created_ns", nanoseconds(call.begin())},
                               {"time_discovered_started_ns", nanoseconds(call.seconds("sent"))},
                               {"time_discovered_completed_ns", nanoseconds(ended)},
                               {"retired", call.done()},
                               {"frames", Json::array()}});
  }

  // Since 1970, by the wall clock of the first dump.
  Json nanoseconds(const std::optional<double>& time) const {
    return time ? Json(dumps_.front().time * 1000 +
                       static_cast<std::int64_t>((*time + dump_.shift) * 1e9))
                : Json();
  }

  const Dumps& dumps_;
  const Dump& dump_;
  std::vector<std::string>& left_out_;
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
  return TorchTrace(dumps, dump, left_out).take();
}

std::string pickle(const Json& value) {
  std::string text = "\x80\x02";
  add_pickle(value, text);
  return text + '.';
}

}  // namespace rondo::tools
