// SPDX-License-Identifier: Apache-2.0
//
// The C API: communicators and memory. Every function turns exceptions into a status here, because
// none may reach C.
#include "lib/c/communicator.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <utility>

#include <rondo/store.h>

#include "base/text.h"
#include "lib/c/status.h"
#include "lib/c/structs.h"

namespace rondo::c {

namespace {

class CStore final : public Store {
 public:
  explicit CStore(const rondo_store& store) : store_(store) {
    if (store.put == nullptr || store.get == nullptr)
      throw Error(Errc::invalid_argument, "options.store has no put or no get: set both");
  }
  void put(std::string_view key, std::string_view value) override {
    const int status =
        store_.put(store_.context, std::string(key).c_str(), std::string(value).c_str());
    if (status != 0)
      throw Error(
          Errc::rendezvous,
          fmt::format("the program's store refused to put '{}': it returned {}", key, status));
  }
  std::string get(std::string_view key, std::chrono::steady_clock::time_point deadline) override {
    const auto left =
        std::chrono::ceil<std::chrono::milliseconds>(deadline - std::chrono::steady_clock::now());
    std::array<char, 8192> value{};
    const int status =
        store_.get(store_.context, std::string(key).c_str(), value.data(), value.size(),
                   static_cast<std::uint64_t>(std::max<std::int64_t>(left.count(), 0)));
    if (status == RONDO_DEADLINE_EXCEEDED)
      throw Error(Errc::deadline_exceeded, fmt::format("the program's store has no '{}'", key));
    if (status != 0)
      throw Error(
          Errc::rendezvous,
          fmt::format("the program's store could not get '{}': it returned {}", key, status));
    return {value.data(), ::strnlen(value.data(), value.size())};
  }

 private:
  rondo_store store_;
};

std::vector<std::string> split_list(const char* text) {
  std::vector<std::string> items;
  for (const std::string_view item : base::split(text, ','))
    if (!item.empty()) items.emplace_back(item);
  return items;
}

std::chrono::milliseconds milliseconds_of(std::uint64_t count) {
  constexpr std::uint64_t most = std::uint64_t{1} << 40;
  return std::chrono::milliseconds{static_cast<std::int64_t>(std::min(count, most))};
}

PlanConstants constants_of(const rondo_constants* given) {
  const rondo_constants from =
      read_struct(given, "options.plan_constants", set_bytes<rondo_constants>("rondo_constants"));
  const auto link = [](const rondo_link_costs& costs) {
    return PlanLinkCosts{costs.latency_s, costs.seconds_per_byte, costs.frame_s};
  };
  return {link(from.host), link(from.network), from.reduce_seconds_per_byte};
}

constexpr const char* init_first =
    "call rondo_options_init() first, which leaves every field not set";

rondo_options unset_options() noexcept {
  rondo_options options{};
  options.bytes = sizeof(rondo_options);
  options.rank = options.reproducible = options.checksum = options.measure = -1;
  options.rdma_gid_index = options.rdma_grants = -1;
  options.rdma_traffic_class = options.rdma_service_level = -1;
  return options;
}

Options options_of(const rondo_options& from) {
  Options options;
  if (from.rank >= 0) options.rank = from.rank;
  if (from.size > 0) options.size = from.size;
  if (from.rendezvous != nullptr) options.rendezvous = from.rendezvous;
  if (from.secret != nullptr) options.secret = from.secret;
  if (from.connect_deadline_ms != 0)
    options.connect_deadline = milliseconds_of(from.connect_deadline_ms);
  if (from.deadline_ms != 0) options.deadline = milliseconds_of(from.deadline_ms);
  if (from.transports != nullptr) options.transports = split_list(from.transports);
  if (from.interfaces != nullptr) options.interfaces = split_list(from.interfaces);
  if (from.algorithm != nullptr) options.algorithm = from.algorithm;
  if (from.reproducible >= 0) options.reproducible = from.reproducible != 0;
  if (from.checksum >= 0) options.checksum = from.checksum != 0;
  options.connections = from.connections;
  options.port_first = from.port_first;
  options.port_last = from.port_last != 0 ? from.port_last : from.port_first;
  if (from.host != nullptr) options.host = from.host;
  if (from.constants != nullptr) options.constants = from.constants;
  if (from.measure >= 0) options.measure = from.measure != 0;
  options.segment_bytes = from.segment_bytes;
  options.depth = from.depth;
  options.staging_bytes = from.staging_bytes;
  if (from.integrity != nullptr) options.integrity = from.integrity;
  options.ranks_on_host = from.ranks_on_host;
  if (from.wait != nullptr) options.wait = from.wait;
  if (from.metrics != nullptr) options.metrics = from.metrics;
  options.metrics_period = milliseconds_of(from.metrics_period_ms);
  if (from.metrics_labels != nullptr) options.metrics_labels = split_list(from.metrics_labels);
  if (from.plan_constants != nullptr) options.plan_constants = constants_of(from.plan_constants);
  if (from.rdma_devices != nullptr) options.rdma_devices = split_list(from.rdma_devices);
  options.rdma_gid_index = from.rdma_gid_index;
  if (from.rdma_grants >= 0) options.rdma_grants = from.rdma_grants != 0;
  options.rdma_traffic_class = from.rdma_traffic_class;
  options.rdma_service_level = from.rdma_service_level;
  if (from.interrupted != nullptr)
    options.interrupted = [asks = from.interrupted, context = from.interrupted_context] {
      return asks(context) != 0;
    };
  return options;
}

// A negative number means host memory in C++, and so a mistake here would go unnoticed. instead:
// the function for host memory.
int checked_gpu(int device, const char* instead) {
  if (device >= 0) return device;
  throw Error(
      Errc::invalid_argument,
      fmt::format("device is {}: GPUs count from 0; {} is for host memory", device, instead));
}

// For the caller, who owns it.
template <class Handle, class Value>
Handle* make(Value value) {
  return std::make_unique<Handle>(Handle{std::move(value)}).release();
}

// device: a GPU; nothing: host memory.
rondo_status allocate(rondo_communicator* communicator, std::size_t bytes,
                      std::optional<int> device, rondo_memory** memory) noexcept {
  return guarded([&] {
    require(communicator, "communicator");
    require(memory, "memory");
    *memory = nullptr;
    const int where = device ? checked_gpu(*device, "rondo_allocate()") : -1;
    *memory = make<rondo_memory>(communicator->value.allocate(bytes, where));
  });
}

rondo_status register_memory(rondo_communicator* communicator, void* data, std::size_t bytes,
                             std::optional<int> device,
                             rondo_registration** registration) noexcept {
  return guarded([&] {
    require(communicator, "communicator");
    require(registration, "registration");
    *registration = nullptr;
    const int where = device ? checked_gpu(*device, "rondo_register()") : -1;
    *registration =
        make<rondo_registration>(communicator->value.register_memory(data, bytes, where));
  });
}

}  // namespace

}  // namespace rondo::c

using rondo::c::guarded;
using rondo::c::require;

extern "C" {

rondo_status rondo_options_init_bytes(rondo_options* options, size_t bytes) {
  return guarded([&] {
    require(options, "options");
    rondo::c::check_bytes<rondo_options>(bytes, "options", "give sizeof(rondo_options)");
    const rondo_options unset = rondo::c::unset_options();
    std::memset(reinterpret_cast<std::byte*>(options), 0, bytes);
    std::memcpy(reinterpret_cast<std::byte*>(options), &unset, std::min(bytes, sizeof unset));
    options->bytes = bytes;
  });
}

// In parentheses: the header has a macro of that name.
rondo_status(rondo_options_init)(rondo_options* options) {
  return rondo_options_init_bytes(options, rondo::c::first_bytes<rondo_options>);
}

rondo_status rondo_connect(const rondo_options* from, rondo_communicator** communicator) {
  return guarded([&] {
    require(communicator, "communicator");
    *communicator = nullptr;
    std::unique_ptr<rondo::c::CStore> store;
    rondo_options given = rondo::c::unset_options();
    if (from != nullptr)
      given = rondo::c::read_struct(from, "options", rondo::c::init_first, given);
    rondo::Options options = rondo::c::options_of(given);
    if (given.store != nullptr) {
      store = std::make_unique<rondo::c::CStore>(*given.store);
      options.store = store.get();
    }
    *communicator = rondo::c::make<rondo_communicator>(rondo::Communicator::connect(options));
  });
}

void rondo_destroy(rondo_communicator* communicator) {
  const std::unique_ptr<rondo_communicator> last(communicator);
}
int rondo_rank(const rondo_communicator* communicator) {
  return communicator != nullptr ? communicator->value.rank() : -1;
}
int rondo_size(const rondo_communicator* communicator) {
  return communicator != nullptr ? communicator->value.size() : 0;
}

rondo_status rondo_local_ranks(const rondo_communicator* communicator, int* ranks, size_t capacity,
                               size_t* count) {
  return guarded([&] {
    require(communicator, "communicator");
    require(count, "count");
    if (capacity != 0) require(ranks, "ranks");
    const std::span<const int> local = communicator->value.local_ranks();
    *count = local.size();
    std::copy_n(local.begin(), std::min(capacity, local.size()), ranks);
  });
}

rondo_status rondo_split(rondo_communicator* communicator, int color, int key,
                         rondo_communicator** part) {
  return guarded([&] {
    require(communicator, "communicator");
    require(part, "part");
    *part = nullptr;
    if (auto made = communicator->value.split(color, key))
      *part = rondo::c::make<rondo_communicator>(std::move(*made));
  });
}

rondo_status rondo_allocate(rondo_communicator* communicator, size_t bytes, rondo_memory** memory) {
  return rondo::c::allocate(communicator, bytes, {}, memory);
}
rondo_status rondo_allocate_on(rondo_communicator* communicator, size_t bytes, int device,
                               rondo_memory** memory) {
  return rondo::c::allocate(communicator, bytes, device, memory);
}
void* rondo_data(const rondo_memory* memory) {
  return memory != nullptr ? memory->value.data() : nullptr;
}
void rondo_free(rondo_memory* memory) {
  const std::unique_ptr<rondo_memory> last(memory);
}
rondo_status rondo_register(rondo_communicator* communicator, void* data, size_t bytes,
                            rondo_registration** registration) {
  return rondo::c::register_memory(communicator, data, bytes, {}, registration);
}
rondo_status rondo_register_on(rondo_communicator* communicator, void* data, size_t bytes,
                               int device, rondo_registration** registration) {
  return rondo::c::register_memory(communicator, data, bytes, device, registration);
}
void rondo_deregister(rondo_registration* registration) {
  const std::unique_ptr<rondo_registration> last(registration);
}
}
