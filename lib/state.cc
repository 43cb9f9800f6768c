// SPDX-License-Identifier: Apache-2.0
#include "lib/state.h"

#include <fmt/format.h>
#include <sched.h>

#include <algorithm>
#include <map>
#include <set>

#include "base/bytes.h"
#include "base/crc32c.h"

namespace rondo {

namespace {

constexpr milliseconds farewell_time{1000};
constexpr std::size_t most_plans = 1024;
constexpr int most_depth = 1024;
constexpr milliseconds longest_deadline = std::chrono::hours{24 * 365};
constexpr std::size_t longest_name = 64, longest_address = 16384;

int own_cores() noexcept {
  cpu_set_t set;
  return ::sched_getaffinity(0, sizeof set, &set) == 0 ? CPU_COUNT(&set) : 1;
}

// record := host:string cores:u32 transports:u8 {name:string address:string}*
struct Record {
  std::string host;
  int cores = 1;
  std::map<std::string, Blob, std::less<>> addresses;
};

Record read_record(int rank, const Blob& bytes) {
  Reader reader(bytes);
  Record record;
  record.host = reader.get_string(longest_address);
  record.cores = static_cast<int>(std::clamp<std::uint32_t>(reader.get<std::uint32_t>(), 1, 1 << 20));
  const int count = reader.get<std::uint8_t>();
  for (int i = 0; i < count && reader.ok(); ++i) {
    std::string name = reader.get_string(longest_name);
    const std::string address = reader.get_string(longest_address);
    const auto span = std::as_bytes(std::span(address.data(), address.size()));
    record.addresses.emplace(std::move(name), Blob(span.begin(), span.end()));
  }
  if (!reader.ok() || reader.left() != 0)
    throw Error(
        Errc::rendezvous,
        fmt::format("the record of rank {} cannot be read: do all ranks run the same version?", rank));
  return record;
}

}  // namespace

CommunicatorState::CommunicatorState(const Options& options, const TransportFactory& factory)
    : options_(options), place_(resolve_place(options)) {
  plan_options_ = {options_.algorithm.empty() ? std::nullopt : parse_algorithm(options_.algorithm),
                   options_.segment_bytes, options_.depth, options_.staging_bytes / lane_count,
                   options_.reproducible};
  if (!options_.algorithm.empty() && !plan_options_.algorithm)
    throw Error(Errc::invalid_argument,
                fmt::format("algorithm is '{}'; possible are ring, tree, star, doubling and chain",
                            options_.algorithm));
  if (options_.deadline.count() <= 0)
    throw Error(Errc::invalid_argument,
                fmt::format("deadline is {} ms, it must be more than 0", options_.deadline.count()));
  if (options_.depth < 0 || options_.depth > most_depth)
    throw Error(Errc::invalid_argument,
                fmt::format("depth is {}, it must be from 0 to {}", options_.depth, most_depth));
  topology_.ranks = place_.size;
  std::vector<Transport*> routes(static_cast<std::size_t>(place_.size), nullptr), all;
  bool crowded = false;
  if (place_.size > 1) {
    transports_ = factory(place_, options_);
    joined_ = join(place_, options_, make_record());
    try {
      routes = connect_transports();
    } catch (const std::exception& error) {
      // The others may have come further: their first operation fails with this cause.
      joined_.control->report({Errc::rendezvous, error.what()});
      throw;
    }
    for (const auto& t : transports_) all.push_back(t.get());
    crowded = topology_.ranks_per_host > topology_.cores_per_host;
  }
  EngineObserver* const observer = place_.size > 1 ? this : nullptr;
  engine_ = std::make_unique<Engine>(
      EngineOptions{place_.rank, place_.size, crowded, options_.checksum, transport_name_}, std::move(routes),
      std::move(all), observer);
  if (joined_.control) joined_.control->start(*this);
}

CommunicatorState::~CommunicatorState() {
  if (joined_.control) {
    const RankStatus status = engine_->status();
    const std::uint64_t finished[lane_count] = {status.lanes[0].finished, status.lanes[1].finished};
    joined_.control->leave(finished, Clock::now() + farewell_time);
  }
  engine_->stop();
  joined_.control.reset();
  engine_.reset();
}

Blob CommunicatorState::make_record() const {
  Writer writer;
  writer.put_string(host_identity());
  writer.put(static_cast<std::uint32_t>(own_cores()));
  writer.put(static_cast<std::uint8_t>(transports_.size()));
  for (const auto& t : transports_) {
    const Blob address = t->address();
    writer.put_string(t->name());
    writer.put_string({reinterpret_cast<const char*>(address.data()), address.size()});
  }
  return writer.take();
}

// The nearest transport to each peer; both ends come to the same choice because distance is symmetric.
std::vector<Transport*> CommunicatorState::connect_transports() {
  std::vector<Record> records;
  for (int rank = 0; rank < place_.size; ++rank)
    records.push_back(read_record(rank, joined_.records[static_cast<std::size_t>(rank)]));
  std::map<std::string, std::pair<int, int>> hosts;  // ranks, cores
  for (const Record& r : records) hosts[r.host] = {hosts[r.host].first + 1, r.cores};
  for (const auto& [host, counts] : hosts) {
    topology_.ranks_per_host = std::max(topology_.ranks_per_host, counts.first);
    topology_.cores_per_host =
        counts.first == topology_.ranks_per_host ? counts.second : topology_.cores_per_host;
  }
  std::vector<Transport*> routes(records.size(), nullptr);
  std::set<std::string> names;
  for (int peer = 0; peer < place_.size; ++peer) {
    if (peer == place_.rank) continue;
    std::string why;
    std::optional<int> best;
    for (const auto& t : transports_) {
      const auto address = records[static_cast<std::size_t>(peer)].addresses.find(t->name());
      const Reach reach = address != records[static_cast<std::size_t>(peer)].addresses.end()
                              ? t->reach(peer, address->second)
                              : Reach{{}, "the peer has no address"};
      if (!reach.distance) why += fmt::format("{}{}: {}", why.empty() ? "" : "; ", t->name(), reach.why);
      if (!reach.distance || (best && *best <= *reach.distance)) continue;
      best = reach.distance;
      routes[static_cast<std::size_t>(peer)] = t.get();
    }
    if (!best)
      throw Error(Errc::rendezvous, fmt::format("rank {} cannot reach rank {}: {}", place_.rank, peer, why));
    names.emplace(routes[static_cast<std::size_t>(peer)]->name());
  }
  transport_name_.clear();
  for (const std::string& name : names) transport_name_ += (transport_name_.empty() ? "" : "+") + name;
  for (const auto& t : transports_) {
    std::vector<Blob> addresses;
    for (const Record& r : records) {
      const auto found = r.addresses.find(t->name());
      addresses.push_back(found != r.addresses.end() ? found->second : Blob{});
    }
    t->start(std::move(addresses), joined_.job);
  }
  return routes;
}

std::string CommunicatorState::address() const {
  return transports_.empty() ? std::string() : transports_.front()->describe();
}

const Plan& CommunicatorState::plan(Collective operation, std::size_t count, DType type) {
  if (static_cast<int>(operation) >= collective_count || !is_valid(type))
    throw Error(Errc::invalid_argument, "there is no such operation or element type");
  if (count > (std::size_t{1} << 50))
    throw Error(Errc::invalid_argument, fmt::format("count is {}, more than memory can hold", count));
  const std::size_t blocks = is_blocked(operation) ? static_cast<std::size_t>(place_.size) : 1;
  const std::uint64_t bytes = count * size_of(type) * blocks;
  auto& plans = plans_[static_cast<std::size_t>(operation)];
  if (const auto found = plans.find(bytes); found != plans.end()) return found->second;
  if (plans.size() >= most_plans) plans.clear();
  PlanOptions options = plan_options_;  // the wanted algorithm is for the operations that have it
  if (options.algorithm && !supports(*options.algorithm, operation)) options.algorithm.reset();
  return plans.emplace(bytes, choose_plan(operation, bytes, topology_, CostConstants{}, options))
      .first->second;
}

// Whatever shapes the frames without showing in the arguments: ranks whose options differ must notice.
std::uint32_t CommunicatorState::plan_hash(const Call& call) const noexcept {
  std::byte bytes[24];
  store_little(bytes, static_cast<std::uint64_t>(call.segment_elements));
  store_little(bytes + 8, static_cast<std::uint64_t>(call.depth));
  store_little(bytes + 16, static_cast<std::uint64_t>(options_.checksum));
  return crc32c(bytes);
}

Work CommunicatorState::start(const Arguments& a) {
  check_arguments(a);
  const bool shape_of_out = a.operation == Collective::reduce_scatter || !a.reads_in;
  const Buffer& shape = shape_of_out ? a.out : a.in;
  const Plan& chosen = plan(a.operation, shape.count, shape.type);
  Call call;
  call.signature = {a.operation,
                    shape.type,
                    a.op,
                    chosen.algorithm,
                    static_cast<std::uint32_t>(a.root),
                    shape.count,
                    a.options->scale.value_or(1.0),
                    0};
  call.in = static_cast<const std::byte*>(a.reads_in ? a.in.data : a.out.data);
  call.out = static_cast<std::byte*>(a.out.data);
  call.in_bytes = a.reads_in ? a.in.count * size_of(a.in.type) : 0;
  call.out_bytes = a.writes_out ? a.out.count * size_of(a.out.type) : 0;
  call.priority = a.options->priority;
  const std::size_t blocks = is_blocked(a.operation) ? static_cast<std::size_t>(place_.size) : 1;
  call.segment_elements = std::max<std::size_t>(1, chosen.segment_bytes / blocks / size_of(shape.type));
  // More segments in flight than there are would only make the order of frames longer to walk.
  const std::uint64_t segments = shape.count / call.segment_elements + 1;
  call.depth = static_cast<std::uint32_t>(
      std::clamp<std::uint64_t>(static_cast<std::uint64_t>(std::max(1, chosen.depth)), 1, segments));
  call.time_limit =
      std::min(a.options->deadline.count() > 0 ? a.options->deadline : options_.deadline, longest_deadline);
  call.tag = a.options->tag;
  call.signature.plan = plan_hash(call);
  return Work(engine_->start(call));
}

void CommunicatorState::abort(std::error_code why) noexcept {
  try {
    const Failure failure{Errc::aborted, fmt::format("rank {} called abort: {}", place_.rank, why.message())};
    engine_->abort(failure);
  } catch (...) {  // no memory for the message: the deadline remains
  }
}

void CommunicatorState::failure(const Failure& failure) {
  joined_.control->report(failure);
}
void CommunicatorState::deadline(Priority lane, std::uint64_t number, nanoseconds limit,
                                 const std::string& view) {
  joined_.control->report_deadline(lane, number, limit, view);
}
void CommunicatorState::stalled(Priority lane, std::uint64_t number) {
  joined_.control->report_stall(lane, number);
}
RankStatus CommunicatorState::status() {
  return engine_->status();
}
void CommunicatorState::failed(const Failure& failure) {
  engine_->fail(failure);
}
void CommunicatorState::peer_left(int rank, const std::uint64_t (&finished)[lane_count]) {
  engine_->peer_left(rank, finished);
}

}  // namespace rondo
