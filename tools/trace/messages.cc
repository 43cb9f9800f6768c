// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include <algorithm>
#include <limits>
#include <tuple>

#include "base/text.h"
#include "tools/shared/text.h"
#include "tools/trace/findings.h"

namespace rondo::tools {
namespace {

constexpr std::size_t most_lone = 12;
constexpr double never = -std::numeric_limits<double>::infinity();

// Messages that may be matched: whether they are sends, from (-1: any rank), to, key.
using MessageKind = std::tuple<bool, int, int, std::string_view>;

// Others are batches and all_to_all_v.
bool is_message(const DumpCall& call) {
  return call.raw("name") == "send" || call.raw("name") == "receive";
}

MessageKind kind_of(const Dump& dump, const DumpCall& call) {
  const bool sends = call.raw("name") == "send";
  const int peer = call.rank("peer");
  return {sends, sends ? dump.rank : peer, sends ? peer : dump.rank, call.raw("key")};
}

// Knows when the last message of each kind ends, on the common clock. One that waits never does.
class MessageEnds {
 public:
  explicit MessageEnds(const Dumps& dumps) {
    for (const Dump& dump : dumps)
      for (const auto& [number, call] : dump.lanes[messages_lane].calls) {
        // Without `called`, `ended` is only a lower bound.
        const double ended = call.has("called") ? call.seconds("ended").value_or(0) : 0;
        const double end = call.done() ? dump.shift + ended : -never;
        if (call.raw("name") == "batch") {
          raise(batches_, dump.rank, end);
          raise(batches_, -1, end);
          continue;
        }
        if (!is_message(call)) continue;
        const MessageKind kind = kind_of(dump, call);
        raise(ends_, kind, end);
        if (const auto& [sends, from, to, key] = kind; sends)
          raise(ends_, {true, -1, to, key}, end);
      }
  }
  // The latest end of those that may match it. A batch of the peer may have any message.
  double of_partners(const MessageKind& kind) const {
    const auto& [sends, from, to, key] = kind;
    const double any = sends ? find(ends_, MessageKind(false, -1, to, key)) : never;
    return std::max(
        {any, find(ends_, MessageKind(!sends, from, to, key)), find(batches_, sends ? to : from)});
  }

 private:
  template <class Key>
  static void raise(std::map<Key, double>& ends, const Key& key, double end) {
    const auto place = ends.try_emplace(key, end).first;
    place->second = std::max(place->second, end);
  }
  template <class Key>
  static double find(const std::map<Key, double>& ends, const Key& key) {
    const auto found = ends.find(key);
    return found == ends.end() ? never : found->second;
  }

  std::map<MessageKind, double> ends_;
  std::map<int, double> batches_;  // by rank; -1: any
};

struct LoneMessages {
  std::size_t count = 0;
  bool failed = false;
  double longest = 0;
};

TraceFinding tell_lone(const Dumps& dumps, const MessageKind& kind, const LoneMessages& lone) {
  const auto& [sends, from, to, key] = kind;
  const int rank = sends ? from : to, peer = sends ? to : from;
  const char* const waits = lone.failed ? "waited" : "waits";
  const std::string other = peer < 0 ? "no rank" : fmt::format("rank {}", peer);
  const std::string why = peer >= 0 && find_dump(dumps, peer) == nullptr
                              ? "there is no file of " + other
                              : fmt::format("{} {} in {} {} for it", other, waits,
                                            peer < 0 ? "a" : "no", sends ? "receive" : "send");
  return {sends ? "no_receive" : "no_send",
          {rank},
          fmt::format("rank {} {} in {} {}{} {} {} (key {}, {}); {}", rank, waits,
                      lone.count == 1 ? "a" : std::to_string(lone.count),
                      sends ? "send" : "receive", lone.count == 1 ? "" : "s", sends ? "to" : "from",
                      peer < 0 ? "any rank" : other, key, format_seconds(lone.longest), why),
          dump_lanes[messages_lane]};
}

}  // namespace

void find_lone_messages(const Dumps& dumps, TraceFindings& findings) {
  const MessageEnds ends(dumps);
  const Dump& earliest = *std::ranges::min_element(dumps, {}, &Dump::shift);
  const auto size = static_cast<std::size_t>(dumps.front().written.rank("size"));
  const bool all_sound = dumps.size() == size && std::ranges::all_of(dumps, &Dump::sound);
  std::map<MessageKind, LoneMessages> lone;
  for (const Dump& dump : dumps)
    for (const auto& [number, call] : dump.lanes[messages_lane].calls) {
      // Data of a receive that moves has come.
      const bool moves = call.raw("name") == "receive" && call.raw("state") == "moving";
      if (!is_message(call) || moves) continue;
      const MessageKind kind = kind_of(dump, call);
      const bool any = call.raw("peer") == "-1";
      const Dump* const peer = any ? &earliest : find_dump(dumps, call.rank("peer"));
      if (any ? !all_sound : peer != nullptr && !peer->sound()) continue;
      const double time = waited(dump, call, peer == nullptr ? dump : *peer);
      if (time < least_wait || ends.of_partners(kind) >= dump.shift - dump.doubt) continue;
      LoneMessages& messages = lone[kind];
      ++messages.count;
      messages.failed |= !call.waits();
      messages.longest = std::max(messages.longest, time);
    }
  std::size_t told = 0;
  for (const auto& [kind, messages] : lone)
    if (told++ < most_lone) findings.push_back(tell_lone(dumps, kind, messages));
  if (told > most_lone)
    findings.push_back({"more",
                        {},
                        fmt::format("others wait so: {} kinds of messages", told - most_lone),
                        dump_lanes[messages_lane]});
}

}  // namespace rondo::tools
