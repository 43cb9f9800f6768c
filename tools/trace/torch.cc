// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>
#include <rondo/version.h>

#include <algorithm>
#include <bit>
#include <cmath>

#include "base/text.h"
#include "base/traits.h"
#include "tools/shared/lists.h"
#include "tools/shared/text.h"
#include "tools/trace/exports.h"

namespace rondo::tools {
namespace {

// torchfrtrace ends with an AssertionError at any other name.
std::string_view torch_name(Collective operation) {
  switch (operation) {
    case Collective::all_gather:
      return "_all_gather_base";
    case Collective::reduce_scatter:
      return "_reduce_scatter_base";
    case Collective::all_to_all:
      return "all_to_all_single";
    default:
      return base::traits_of(operation).name;
  }
}

std::string torch_type(const std::string& name) {
  constexpr std::array<std::pair<std::string_view, std::string_view>, 10> types{
      {{"f64", "Double"},
       {"f32", "Float"},
       {"f16", "Half"},
       {"bf16", "BFloat16"},
       {"i64", "Long"},
       {"i32", "Int"},
       {"i16", "Short"},
       {"i8", "Char"},
       {"u8", "Byte"},
       {"u16", "UInt16"}}};
  for (const auto& [ours, theirs] : types)
    if (name == ours) return std::string(theirs);
  return name;
}

// `of_own`: one block, of which the other side has one for each rank.
Json sizes_of(const DumpedCall& call, std::uint64_t blocks) {
  return Json::array({Json::array({call.count * blocks})});
}

std::uint64_t first_of_all(const std::vector<Dump>& dumps, std::size_t lane) {
  std::uint64_t first = 0;
  for (const Dump& dump : dumps)
    if (const auto& calls = dump.lanes[lane].calls; !calls.empty())
      first = std::max(first, calls.begin()->first);
  return first;
}

// Whether the ring has every message since the start: only then messages can be paired.
bool has_all_messages(const Dump& dump) {
  const DumpedLane& lane = dump.lanes[messages_lane];
  return lane.calls.size() >= lane.started;
}

struct Group {
  std::string name;
  std::vector<int> ranks;
  std::uint64_t number = 0;
};

class Trace {
 public:
  Trace(const std::vector<Dump>& dumps, const Dump& dump, double shift,
        std::vector<std::string>& left_out)
      : dumps_(dumps), dump_(dump), shift_(shift), left_out_(left_out) {
    for (std::size_t lane = 0; lane < messages_lane; ++lane) add_lane(lane);
    for (const auto& each : dump.lanes[messages_lane].calls) add_message(each.second);
    std::ranges::stable_sort(entries_, {}, [](const auto& entry) { return entry.first; });
  }

  Json take() {
    Json entries = Json::array(), config = Json::object();
    for (auto& [time, entry] : entries_) {
      entry["record_id"] = entries.size();
      entries.push_back(std::move(entry));
    }
    for (const Group& group : groups_)
      config[group.name] = {{"name", group.name},
                            {"desc", "rondo"},
                            {"ranks", fmt::format("[{}]", base::join(group.ranks, ", "))}};
    return {{"version", "2.10"},
            {"comm_lib_version", fmt::format("rondo {}", version())},
            {"pg_config", std::move(config)},
            {"pg_status", Json::object()},
            {"entries", std::move(entries)}};
  }

 private:
  void leave_out(const std::string& name) { add_once(left_out_, name); }

  Group& group(const std::string& name, const std::vector<int>& ranks) {
    const auto found = std::ranges::find(groups_, name, &Group::name);
    if (found != groups_.end()) return *found;
    groups_.push_back({name, ranks});
    return groups_.back();
  }

  void add_lane(std::size_t lane) {
    std::vector<int> ranks;
    for (int rank = 0; rank < dump_.size; ++rank) ranks.push_back(rank);
    const std::string prefix = dump_.group.empty() ? "" : dump_.group + " ";
    const std::string name = prefix + std::string(lane_names[lane]);
    group(name, ranks);
    const auto& calls = dump_.lanes[lane].calls;
    for (auto each = calls.lower_bound(first_of_all(dumps_, lane)); each != calls.end(); ++each) {
      const DumpedCall& call = each->second;
      const auto operation = parse_collective(call.name());
      if (!operation || base::traits_of(*operation).messages) {
        leave_out(call.name());
        continue;
      }
      const auto ranks_of = [&](bool all) {
        return all ? static_cast<std::uint64_t>(dump_.size) : 1;
      };
      const base::Traits& traits = base::traits_of(*operation);
      const bool one_block = traits.counts_one_block();
      Json entry = entry_of(call, name, std::string(torch_name(*operation)),
                            ranks_of(one_block && traits.scatters()),
                            ranks_of(one_block && traits.gathers()));
      entry["collective_seq_id"] = call.number;
      add(call, std::move(entry));
    }
  }

  // A group for each sender, receiver and key: their messages pair one after the other.
  void add_message(const DumpedCall& call) {
    const bool sends = call.name() == "send";
    if ((!sends && call.name() != "receive") || !call.peer || *call.peer < 0)
      return leave_out(!call.peer || *call.peer >= 0 ? call.name() : "receive from any rank");
    const int from = sends ? dump_.rank : *call.peer, to = sends ? *call.peer : dump_.rank;
    const auto peer = std::ranges::find(dumps_, *call.peer, &Dump::rank);
    if (from == to || !has_all_messages(dump_) || peer == dumps_.end() || !has_all_messages(*peer))
      return leave_out(call.name());
    Group& pair = group(fmt::format("{}->{} key {}", from, to, call.key.value_or(0)),
                        {std::min(from, to), std::max(from, to)});
    // Ranks within this group.
    const int first = from < to ? 0 : 1;
    Json entry = entry_of(call, pair.name,
                          sends ? fmt::format("send {}->{}", first, 1 - first)
                                : fmt::format("recv {}<-{}", 1 - first, first),
                          1, 1);
    entry["is_p2p"] = true;
    entry["collective_seq_id"] = entry["p2p_seq_id"] = ++pair.number;
    add(call, std::move(entry));
  }

  Json entry_of(const DumpedCall& call, const std::string& group, const std::string& name,
                std::uint64_t blocks_in, std::uint64_t blocks_out) const {
    const Json types = Json::array({torch_type(call.signature[1])});
    return {{"process_group", Json::array({group, "rondo"})},
            {"profiling_name", "rondo:" + name},
            {"collective_seq_id", 0},
            {"p2p_seq_id", 0},
            {"is_p2p", false},
            {"input_sizes", sizes_of(call, blocks_in)},
            {"output_sizes", sizes_of(call, blocks_out)},
            {"input_dtypes", types},
            {"output_dtypes", types},
            {"state", call.done() ? "completed"
                      : call.sent ? "started"
                                  : "scheduled"},
            {"time_created_ns", nanoseconds(call.called)},
            {"time_discovered_started_ns", nanoseconds(call.sent)},
            {"time_discovered_completed_ns", nanoseconds(call.done() ? call.ended : std::nullopt)},
            {"retired", call.done()},
            {"frames", Json::array()}};
  }

  // Since 1970, by the wall clock of the first dump.
  Json nanoseconds(const std::optional<double>& time) const {
    if (!time) return {};
    return dumps_.front().time * 1000 + static_cast<std::int64_t>((*time + shift_) * 1e9);
  }

  // A call whose start is not known comes after the one before it.
  void add(const DumpedCall& call, Json entry) {
    const double time = call.called.value_or(call.ended.value_or(0));
    if (entry["time_created_ns"].is_null()) entry["time_created_ns"] = nanoseconds(time);
    entries_.emplace_back(time, std::move(entry));
  }

  const std::vector<Dump>& dumps_;
  const Dump& dump_;
  const double shift_;
  std::vector<std::string>& left_out_;
  std::vector<Group> groups_;
  std::vector<std::pair<double, Json>> entries_;
};

std::string little_endian(std::uint64_t value, std::size_t bytes) {
  std::string text;
  for (std::size_t i = 0; i < bytes; ++i) text += static_cast<char>(value >> 8 * i & 0xff);
  return text;
}

// Opcodes as in Python's pickletools.
void add_pickle(const Json& value, std::string& text) {
  switch (value.type()) {
    case Json::value_t::object:
      text += "}(";
      for (const auto& [name, member] : value.items()) {
        add_pickle(name, text);
        add_pickle(member, text);
      }
      text += 'u';
      break;
    case Json::value_t::array:
      text += "](";
      for (const Json& element : value) add_pickle(element, text);
      text += 'e';
      break;
    case Json::value_t::string: {
      const auto& string = value.get_ref<const std::string&>();
      text += 'X' + little_endian(string.size(), 4) + string;
      break;
    }
    case Json::value_t::boolean:
      text += value.get<bool>() ? '\x88' : '\x89';
      break;
    case Json::value_t::number_integer:
    case Json::value_t::number_unsigned:
      // Nine bytes, so that the sign is right for both kinds.
      text += "\x8a\x09" + little_endian(value.get<std::uint64_t>(), 8);
      text += value.is_number_unsigned() || value.get<std::int64_t>() >= 0 ? '\0' : '\xff';
      break;
    default:
      text += 'N';
  }
}

}  // namespace

Json torch_trace(const std::vector<Dump>& dumps, const Dump& dump, double shift,
                 std::vector<std::string>& left_out) {
  return Trace(dumps, dump, shift, left_out).take();
}

std::string pickle(const Json& value) {
  std::string text = "\x80\x02";
  add_pickle(value, text);
  return text + '.';
}

}  // namespace rondo::tools
