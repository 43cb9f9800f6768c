// SPDX-License-Identifier: Apache-2.0
//
// The inside of FakeFabric: the objects behind the ibv_* types, and what moves between them.
#pragma once

#include <fmt/format.h>

#include <chrono>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <span>
#include <stop_token>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "base/mutex.h"
#include "transports/rdma/fake_verbs.h"

namespace rondo::testing {

// Prints what a test did wrong and aborts.
[[noreturn]] void die(const std::string& what);

// A port, as it is now.
struct PortState {
  int host = 0;
  std::size_t device = 0;
  unsigned number = 1;
  FakePort port;
};

struct FakeContext : ibv_context {
  int host = 0;
  std::size_t device_index = 0;
  int uses = 0;  // objects that need this one, here and below
  std::deque<ibv_async_event> events;
};

struct FakePd : ibv_pd {
  int uses = 0;
};

struct FakeMr : ibv_mr {
  int access = 0;
};

struct FakeCq;
struct FakeChannel : ibv_comp_channel {
  int uses = 0;
  std::deque<FakeCq*> events;
};

struct FakeCompletion {
  ibv_wc wc{};
  bool receive = false;
  std::uint64_t sequence = 0;  // of the request
  std::uint64_t due = 0;
};

struct FakeCq : ibv_cq {
  int uses = 0;
  bool armed = false;
  std::int64_t unacknowledged = 0;
  std::deque<FakeCompletion> hidden, visible;
};

struct FakeRequest {
  ibv_send_wr wr{};
  std::uint64_t sequence = 0, due = 0;
  std::vector<ibv_sge> parts;
  std::size_t bytes = 0;
  bool signalled = false;
  std::optional<std::vector<std::byte>> inlined;
};

struct FakeReceive {
  std::uint64_t id = 0, sequence = 0;
  std::vector<ibv_sge> parts;
  std::size_t bytes = 0;
};

// Payload that was acknowledged and is not in memory yet.
struct FakeLanding {
  std::uint64_t due = 0, address = 0;
  std::uint32_t key = 0;
  std::vector<std::byte> payload;
};

struct FakeQp : ibv_qp {
  int host = 0;
  ibv_qp_cap cap{};
  bool all_signalled = false;
  ibv_qp_state current = IBV_QPS_RESET;  // ibv_qp::state is what the user last asked for
  ibv_qp_attr attributes{};              // as modify_qp has set them
  PortState* port = nullptr;
  std::deque<FakeRequest> sends;
  std::deque<FakeReceive> receives;
  // Entries of both queues are free again when their completion, or a later one, was polled.
  std::uint64_t sends_posted = 0, sends_freed = 0, receives_posted = 0, receives_freed = 0;
  std::uint64_t due = 0, completion_due = 0;  // of the last one
  std::uint64_t completions = 0;
  std::optional<FakeLanding> landing;
  ibv_wc_status stuck = IBV_WC_SUCCESS;  // what the first request will fail with, if no one helps
  std::chrono::steady_clock::time_point stuck_since;
  bool established = false;
  int unacknowledged = 0;  // asynchronous events
};

// The objects of one kind that are alive, by the pointer that users have.
template <class Fake, class Base>
class FakeObjects {
 public:
  explicit FakeObjects(const char* kind) : kind_(kind) {}
  Fake& add() {
    auto made = std::make_unique<Fake>();
    Fake& fake = *made;
    all_[&fake] = std::move(made);
    return fake;
  }
  Fake& at(const Base* pointer) const {
    const auto found = all_.find(pointer);
    if (found == all_.end()) die(fmt::format("a {} is used that is not alive", kind_));
    return *found->second;
  }
  void remove(const Base& base) { all_.erase(&base); }
  const auto& all() const { return all_; }
  std::string describe() const {
    return all_.empty() ? "" : fmt::format(" {} {}(s)", all_.size(), kind_);
  }

 private:
  const char* kind_;
  std::map<const Base*, std::unique_ptr<Fake>> all_;
};

struct HostState {
  FakeHost is;
  std::vector<std::unique_ptr<ibv_device>> devices;
  bool dead = false;
  FakeCounts counts;
};

// Public members are for FakeVerbs and FakeFabric, which hold the mutex.
class FakeFabric::Wire {
 public:
  Wire(std::vector<FakeHost> hosts, FakeFaults faults, std::uint64_t seed);

  mutable base::Mutex mutex;
  std::vector<HostState> hosts RONDO_GUARDED_BY(mutex);
  FakeObjects<FakeContext, ibv_context> contexts RONDO_GUARDED_BY(mutex){"context"};
  FakeObjects<FakePd, ibv_pd> domains RONDO_GUARDED_BY(mutex){"protection domain"};
  FakeObjects<FakeMr, ibv_mr> regions RONDO_GUARDED_BY(mutex){"memory region"};
  FakeObjects<FakeChannel, ibv_comp_channel> channels RONDO_GUARDED_BY(mutex){"channel"};
  FakeObjects<FakeCq, ibv_cq> completion_queues RONDO_GUARDED_BY(mutex){"completion queue"};
  FakeObjects<FakeQp, ibv_qp> queue_pairs RONDO_GUARDED_BY(mutex){"queue pair"};
  std::set<ibv_device**> lists RONDO_GUARDED_BY(mutex);
  std::map<std::uint32_t, FakeQp*> by_number RONDO_GUARDED_BY(mutex);
  std::map<std::uint32_t, FakeMr*> by_key RONDO_GUARDED_BY(mutex);  // local and remote keys
  std::set<std::pair<int, int>> held RONDO_GUARDED_BY(mutex);
  struct Failure {
    int host = -1;
    std::string verb;
    int error = 0, skip = 0, times = 0;
  };
  std::vector<Failure> failures RONDO_GUARDED_BY(mutex);
  const FakeFaults faults;

  HostState& host(int number) RONDO_REQUIRES(mutex);
  PortState& port(int host, std::size_t device, unsigned number) RONDO_REQUIRES(mutex);
  // A new number for a queue pair or a key.
  std::uint32_t next_number() RONDO_REQUIRES(mutex) { return numbers_ += 3; }

  void post(FakeQp& qp, FakeRequest request) RONDO_REQUIRES(mutex);
  void post(FakeQp& qp, FakeReceive receive) RONDO_REQUIRES(mutex);
  // Flushes all requests.
  void enter_error(FakeQp& qp) RONDO_REQUIRES(mutex);
  // Drops all requests, and their completions too if asked.
  void forget(FakeQp& qp, bool completions) RONDO_REQUIRES(mutex);
  void drop(FakeCq& cq) RONDO_REQUIRES(mutex);
  // Frees the queue entries that this completion, which is polled now, stands for.
  void take(const FakeCompletion& completion) RONDO_REQUIRES(mutex);
  void raise(FakeContext& context, const ibv_async_event& event) RONDO_REQUIRES(mutex);
  void raise(FakeQp& qp, ibv_event_type type) RONDO_REQUIRES(mutex);
  // In every open context of the device.
  void raise_at(int host, std::size_t device, unsigned port, ibv_event_type type)
      RONDO_REQUIRES(mutex);
  FakeQp& numbered(std::uint32_t number) RONDO_REQUIRES(mutex);
  // Moves what can move now; the thread of the fabric goes on with what time will move.
  void move() RONDO_REQUIRES(mutex);
  void tick() RONDO_REQUIRES(mutex) {
    ++now_;
    move();
  }

 private:
  enum class Step { moved, later, parked };  // later: time helps; parked: only a call does
  enum class Dice : std::uint64_t { delay, write, completion };

  void run(const std::stop_token& stop) RONDO_EXCLUDES(mutex);
  std::uint64_t drawn(const FakeQp& qp, Dice dice, std::uint64_t index, std::uint32_t most) const
      RONDO_REQUIRES(mutex);
  Step step(FakeQp& from) RONDO_REQUIRES(mutex);
  Step deliver(FakeQp& from, FakeQp& to, std::vector<std::byte> payload) RONDO_REQUIRES(mutex);
  Step stuck(FakeQp& from, ibv_wc_status status, unsigned attempts, std::chrono::nanoseconds most)
      RONDO_REQUIRES(mutex);
  Step fail(FakeQp& from, ibv_wc_status status) RONDO_REQUIRES(mutex);
  void land(FakeQp& to) RONDO_REQUIRES(mutex);
  PortState* destination(const FakeQp& qp) RONDO_REQUIRES(mutex);
  FakeQp* peer(const FakeQp& from, const PortState* place) RONDO_REQUIRES(mutex);
  std::byte* memory(const FakeQp& qp, std::uint32_t key, bool remote, std::uint64_t address,
                    std::size_t bytes, int access) RONDO_REQUIRES(mutex);
  std::optional<std::vector<std::byte>> gather(const FakeQp& qp, const FakeRequest& request)
      RONDO_REQUIRES(mutex);
  bool scatter(const FakeQp& qp, const FakeReceive& receive, std::span<const std::byte> payload)
      RONDO_REQUIRES(mutex);
  void complete(FakeQp& qp, bool receive, std::uint64_t sequence, ibv_wc wc) RONDO_REQUIRES(mutex);
  void complete_send(FakeQp& qp, const FakeRequest& request, ibv_wc_status status)
      RONDO_REQUIRES(mutex);
  void complete_receive(FakeQp& qp, const FakeReceive& receive, ibv_wc wc) RONDO_REQUIRES(mutex);
  void show(FakeCq& cq) RONDO_REQUIRES(mutex);

  const std::uint64_t seed_;
  std::deque<PortState> ports_ RONDO_GUARDED_BY(mutex);
  std::uint32_t numbers_ RONDO_GUARDED_BY(mutex) = 0x100;
  std::uint64_t now_ RONDO_GUARDED_BY(mutex) = 0;
  std::map<std::uint32_t, FakeQp*> active_ RONDO_GUARDED_BY(mutex);  // may have something to move
  std::set<FakeCq*> hiding_ RONDO_GUARDED_BY(mutex);
  bool busy_ RONDO_GUARDED_BY(mutex) = false;      // time will move something
  bool sleeping_ RONDO_GUARDED_BY(mutex) = false;  // the thread, until something is busy
  std::condition_variable_any wake_;
  std::jthread thread_;
};

// Whether the event is one of a queue pair, which the user must acknowledge before destroy_qp.
bool is_of_queue_pair(ibv_event_type type);
// Adds an event to a descriptor, or takes one away if there is one.
void add_event(int descriptor);
void drop_event(int descriptor);

}  // namespace rondo::testing
