// SPDX-License-Identifier: Apache-2.0
#include "transports/rdma/fake_wire.h"

#include <poll.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>

#include "base/mix.h"

namespace rondo::testing {
namespace {

constexpr unsigned for_ever = 7;  // as an attempt count of a queue pair

bool same_bytes(const FakeGid& gid, const ibv_gid& other) {
  return std::memcmp(gid.raw.data(), other.raw, gid.raw.size()) == 0;
}

// Drops the completions of one queue pair.
void erase_completions(std::deque<FakeCompletion>& from, std::uint32_t queue_pair) {
  std::erase_if(from, [&](const FakeCompletion& one) { return one.wc.qp_num == queue_pair; });
}

}  // namespace

void die(const std::string& what) {
  fmt::print(stderr, "fake verbs: {}\n", what);
  std::fflush(stderr);
  std::abort();
}

bool is_of_queue_pair(ibv_event_type type) {
  switch (type) {
    case IBV_EVENT_QP_FATAL:
    case IBV_EVENT_QP_REQ_ERR:
    case IBV_EVENT_QP_ACCESS_ERR:
    case IBV_EVENT_COMM_EST:
    case IBV_EVENT_SQ_DRAINED:
    case IBV_EVENT_PATH_MIG:
    case IBV_EVENT_PATH_MIG_ERR:
    case IBV_EVENT_QP_LAST_WQE_REACHED:
      return true;
    default:
      return false;
  }
}

void add_event(int descriptor) {
  const std::uint64_t one = 1;
  if (::write(descriptor, &one, sizeof one) != sizeof one) die("an eventfd cannot be written");
}

void drop_event(int descriptor) {
  pollfd ready{descriptor, POLLIN, 0};
  std::uint64_t one = 0;
  if (::poll(&ready, 1, 0) == 1 && ::read(descriptor, &one, sizeof one) < 0)
    die("an eventfd cannot be read");
}

FakeFabric::Wire::Wire(std::vector<FakeHost> descriptions, FakeFaults all, std::uint64_t seed)
    : faults(all), seed_(seed) {
  const base::Locked lock(mutex);
  for (FakeHost& one : descriptions) {
    HostState state{std::move(one), {}, false, {}};
    for (std::size_t i = 0; i < state.is.devices.size(); ++i) {
      const FakeDevice& device = state.is.devices[i];
      auto made = std::make_unique<ibv_device>();
      made->node_type = device.transport == IBV_TRANSPORT_IWARP ? IBV_NODE_RNIC : IBV_NODE_CA;
      made->transport_type = device.transport;
      fmt::format_to_n(made->name, sizeof made->name - 1, "{}", device.name);
      fmt::format_to_n(made->dev_name, sizeof made->dev_name - 1, "uverbs{}", i);
      state.devices.push_back(std::move(made));
      for (unsigned number = 1; number <= device.ports.size(); ++number)
        ports_.push_back({static_cast<int>(hosts.size()), i, number, device.ports[number - 1]});
    }
    hosts.push_back(std::move(state));
  }
  thread_ = std::jthread([this](const std::stop_token& stop) { run(stop); });
}

HostState& FakeFabric::Wire::host(int number) {
  if (number < 0 || static_cast<std::size_t>(number) >= hosts.size())
    die(fmt::format("there is no host {}", number));
  return hosts[static_cast<std::size_t>(number)];
}

PortState& FakeFabric::Wire::port(int host, std::size_t device, unsigned number) {
  for (PortState& one : ports_)
    if (one.host == host && one.device == device && one.number == number) return one;
  die(fmt::format("host {} device {} has no port {}", host, device, number));
}

void FakeFabric::Wire::run(const std::stop_token& stop) {
  const base::Locked lock(mutex);
  while (!stop.stop_requested()) {
    sleeping_ = !busy_;
    if (busy_) {
      wake_.wait_for(mutex, stop, faults.tick, [] { return false; });
      tick();
    } else {
      wake_.wait(mutex, stop, [this]() RONDO_REQUIRES(mutex) { return busy_; });
    }
  }
}

std::uint64_t FakeFabric::Wire::drawn(const FakeQp& qp, Dice dice, std::uint64_t index,
                                      std::uint32_t most) const {
  const std::uint64_t stream =
      base::mix_hash(base::mix_hash(seed_, qp.qp_num), static_cast<std::uint64_t>(dice));
  return base::mix_hash(stream, index) % (std::uint64_t{most} + 1);
}

void FakeFabric::Wire::post(FakeQp& qp, FakeRequest request) {
  request.sequence = qp.sends_posted++;
  qp.due = std::max(qp.due, now_ + drawn(qp, Dice::delay, request.sequence, faults.delay));
  request.due = qp.due;
  qp.sends.push_back(std::move(request));
  active_[qp.qp_num] = &qp;
  if (qp.current == IBV_QPS_ERR) enter_error(qp);
}

void FakeFabric::Wire::post(FakeQp& qp, FakeReceive receive) {
  receive.sequence = qp.receives_posted++;
  qp.receives.push_back(std::move(receive));
  if (qp.current == IBV_QPS_ERR) enter_error(qp);
}

void FakeFabric::Wire::move() {
  busy_ = false;
  for (auto next = active_.begin(); next != active_.end();) {
    FakeQp& qp = *next->second;
    if (qp.landing && qp.landing->due <= now_) land(qp);
    Step last = Step::moved;
    while (!qp.sends.empty() && last == Step::moved) last = step(qp);
    if (last == Step::later || qp.landing) busy_ = true;
    next = qp.sends.empty() && !qp.landing ? active_.erase(next) : std::next(next);
  }
  for (auto next = hiding_.begin(); next != hiding_.end();) show(**next++);
  if (busy_ && sleeping_) wake_.notify_one();
}

FakeFabric::Wire::Step FakeFabric::Wire::step(FakeQp& from) {
  FakeRequest& request = from.sends.front();
  if (host(from.host).dead) return Step::parked;
  if (request.due > now_) return Step::later;
  if (request.bytes > from.port->port.max_message_bytes) return fail(from, IBV_WC_LOC_LEN_ERR);
  const PortState* const place = destination(from);
  if (place != nullptr && held.contains({from.host, place->host})) return Step::parked;
  auto payload = gather(from, request);
  if (!payload) return fail(from, IBV_WC_LOC_PROT_ERR);
  FakeQp* const to = peer(from, place);
  if (to == nullptr)
    return stuck(from, IBV_WC_RETRY_EXC_ERR, from.attributes.retry_cnt, faults.retry_delay);
  if (request.wr.opcode != IBV_WR_RDMA_WRITE && to->receives.empty()) {
    const unsigned attempts = from.attributes.rnr_retry;
    return stuck(from, IBV_WC_RNR_RETRY_EXC_ERR, attempts, attempts * faults.rnr_delay);
  }
  return deliver(from, *to, std::move(*payload));
}

FakeFabric::Wire::Step FakeFabric::Wire::deliver(FakeQp& from, FakeQp& to,
                                                 std::vector<std::byte> payload) {
  from.stuck = IBV_WC_SUCCESS;
  if (to.landing) land(to);
  if (!std::exchange(to.established, true) && to.current == IBV_QPS_RTR)
    raise(to, IBV_EVENT_COMM_EST);
  const ibv_send_wr& wr = from.sends.front().wr;
  std::byte* target = nullptr;
  if (wr.opcode != IBV_WR_SEND && !payload.empty()) {
    // Devices do not look at the key of a write of no bytes.
    target = memory(to, wr.wr.rdma.rkey, true, wr.wr.rdma.remote_addr, payload.size(),
                    IBV_ACCESS_REMOTE_WRITE);
    if (target == nullptr || (to.attributes.qp_access_flags & IBV_ACCESS_REMOTE_WRITE) == 0) {
      fail(from, IBV_WC_REM_ACCESS_ERR);
      raise(to, IBV_EVENT_QP_ACCESS_ERR);
      enter_error(to);
      return Step::moved;
    }
  }
  if (wr.opcode == IBV_WR_RDMA_WRITE) {
    if (target != nullptr && faults.late_writes > 0) {
      const std::uint64_t late =
          drawn(from, Dice::write, from.sends.front().sequence, faults.late_writes);
      to.landing = {now_ + late, wr.wr.rdma.remote_addr, wr.wr.rdma.rkey, payload};
      active_[to.qp_num] = &to;
      busy_ = true;
      if (late == 0) land(to);
      target = nullptr;
    }
  } else {
    const FakeReceive receive = std::move(to.receives.front());
    to.receives.pop_front();
    ibv_wc wc{};
    const bool with_mark = wr.opcode == IBV_WR_RDMA_WRITE_WITH_IMM;
    wc.opcode = with_mark ? IBV_WC_RECV_RDMA_WITH_IMM : IBV_WC_RECV;
    wc.wc_flags = with_mark ? unsigned{IBV_WC_WITH_IMM} : 0u;
    wc.imm_data = with_mark ? wr.imm_data : 0u;
    wc.byte_len = static_cast<std::uint32_t>(payload.size());
    ibv_wc_status remote = IBV_WC_SUCCESS;
    if (!with_mark && payload.size() > receive.bytes) {
      wc.status = IBV_WC_LOC_LEN_ERR;
      remote = IBV_WC_REM_INV_REQ_ERR;
    } else if (!with_mark && !scatter(to, receive, payload)) {
      wc.status = IBV_WC_LOC_PROT_ERR;
      remote = IBV_WC_REM_OP_ERR;
    }
    if (remote != IBV_WC_SUCCESS) {
      complete_receive(to, receive, wc);
      fail(from, remote);
      enter_error(to);
      return Step::moved;
    }
    complete_receive(to, receive, wc);
  }
  if (target != nullptr) std::memcpy(target, payload.data(), payload.size());
  FakeCounts& counts = host(from.host).counts;
  ++counts.requests[wr.opcode];
  counts.bytes[wr.opcode] += payload.size();
  if (from.sends.front().signalled) complete_send(from, from.sends.front(), IBV_WC_SUCCESS);
  from.sends.pop_front();
  return Step::moved;
}

FakeFabric::Wire::Step FakeFabric::Wire::stuck(FakeQp& from, ibv_wc_status status,
                                               unsigned attempts, std::chrono::nanoseconds most) {
  const auto now = std::chrono::steady_clock::now();
  if (std::exchange(from.stuck, status) != status) from.stuck_since = now;
  if (attempts == for_ever) return Step::parked;
  return now - from.stuck_since < most ? Step::later : fail(from, status);
}

FakeFabric::Wire::Step FakeFabric::Wire::fail(FakeQp& from, ibv_wc_status status) {
  const FakeRequest request = std::move(from.sends.front());
  from.sends.pop_front();
  complete_send(from, request, status);
  enter_error(from);
  return Step::moved;
}

// The payload is dropped when its memory is no longer registered.
void FakeFabric::Wire::land(FakeQp& to) {
  const FakeLanding landing = std::move(*to.landing);
  to.landing.reset();
  std::byte* const target = memory(to, landing.key, true, landing.address, landing.payload.size(),
                                   IBV_ACCESS_REMOTE_WRITE);
  if (target != nullptr) std::memcpy(target, landing.payload.data(), landing.payload.size());
}

void FakeFabric::Wire::enter_error(FakeQp& qp) {
  qp.current = IBV_QPS_ERR;
  qp.landing.reset();
  for (const FakeRequest& one : std::exchange(qp.sends, {}))
    complete_send(qp, one, IBV_WC_WR_FLUSH_ERR);
  for (const FakeReceive& one : std::exchange(qp.receives, {})) {
    ibv_wc wc{};
    wc.status = IBV_WC_WR_FLUSH_ERR;
    complete_receive(qp, one, wc);
  }
}

void FakeFabric::Wire::forget(FakeQp& qp, bool completions) {
  qp.sends.clear();
  qp.receives.clear();
  qp.landing.reset();
  active_.erase(qp.qp_num);
  if (!completions) return;
  for (const ibv_cq* const one : {qp.send_cq, qp.recv_cq}) {
    FakeCq& cq = completion_queues.at(one);
    erase_completions(cq.hidden, qp.qp_num);
    erase_completions(cq.visible, qp.qp_num);
    if (cq.hidden.empty()) hiding_.erase(&cq);
  }
}

PortState* FakeFabric::Wire::destination(const FakeQp& qp) {
  if (qp.port == nullptr) return nullptr;
  const FakePort& mine = qp.port->port;
  const ibv_ah_attr& route = qp.attributes.ah_attr;
  const auto here = [&](const PortState& one) {
    if (one.port.network != mine.network || one.port.link_layer != mine.link_layer) return false;
    if (route.is_global == 0) return one.port.lid == route.dlid;
    return std::ranges::any_of(one.port.gids, [&](const FakeGid& gid) {
      return gid.readable && same_bytes(gid, route.grh.dgid) &&
             gid.type == mine.gids[route.grh.sgid_index].type;
    });
  };
  const auto found = std::ranges::find_if(ports_, here);
  return found == ports_.end() ? nullptr : &*found;
}

// Null when packets would not be taken: the two ends must agree about everything.
FakeQp* FakeFabric::Wire::peer(const FakeQp& from, const PortState* place) {
  const auto found = by_number.find(from.attributes.dest_qp_num);
  if (place == nullptr || found == by_number.end()) return nullptr;
  FakeQp& to = *found->second;
  const ibv_qp_attr &mine = from.attributes, &theirs = to.attributes;
  const bool up = place->port.state == IBV_PORT_ACTIVE &&
                  from.port->port.state == IBV_PORT_ACTIVE && !host(to.host).dead;
  const bool ready = to.current == IBV_QPS_RTR || to.current == IBV_QPS_RTS;
  const bool agree = to.port == place && theirs.dest_qp_num == from.qp_num &&
                     destination(to) == from.port && mine.path_mtu == theirs.path_mtu &&
                     mine.sq_psn == theirs.rq_psn;
  return up && ready && agree ? &to : nullptr;
}

std::byte* FakeFabric::Wire::memory(const FakeQp& qp, std::uint32_t key, bool remote,
                                    std::uint64_t address, std::size_t bytes, int access) {
  const auto found = by_key.find(key);
  if (found == by_key.end()) return nullptr;
  const FakeMr& mr = *found->second;
  if (mr.pd != qp.pd || key != (remote ? mr.rkey : mr.lkey)) return nullptr;
  const auto begin = reinterpret_cast<std::uintptr_t>(mr.addr);
  if ((mr.access & access) != access || address < begin || bytes > mr.length) return nullptr;
  const std::uint64_t offset = address - begin;
  return offset <= mr.length - bytes ? static_cast<std::byte*>(mr.addr) + offset : nullptr;
}

std::optional<std::vector<std::byte>> FakeFabric::Wire::gather(const FakeQp& qp,
                                                               const FakeRequest& request) {
  if (request.inlined) return request.inlined;
  std::vector<std::byte> payload;
  payload.reserve(request.bytes);
  for (const ibv_sge& part : request.parts) {
    if (part.length == 0) continue;
    const std::byte* const begin = memory(qp, part.lkey, false, part.addr, part.length, 0);
    if (begin == nullptr) return std::nullopt;
    payload.insert(payload.end(), begin, begin + part.length);
  }
  return payload;
}

bool FakeFabric::Wire::scatter(const FakeQp& qp, const FakeReceive& receive,
                               std::span<const std::byte> payload) {
  for (const ibv_sge& part : receive.parts) {
    const std::size_t bytes = std::min<std::size_t>(part.length, payload.size());
    if (bytes == 0) continue;
    std::byte* const begin = memory(qp, part.lkey, false, part.addr, bytes, IBV_ACCESS_LOCAL_WRITE);
    if (begin == nullptr) return false;
    std::memcpy(begin, payload.data(), bytes);
    payload = payload.subspan(bytes);
  }
  return true;
}

void FakeFabric::Wire::complete(FakeQp& qp, bool receive, std::uint64_t sequence, ibv_wc wc) {
  FakeCq& cq = completion_queues.at(receive ? qp.recv_cq : qp.send_cq);
  if (cq.hidden.size() + cq.visible.size() >= static_cast<std::size_t>(cq.cqe))
    die(fmt::format("a completion queue of {} entries overran", cq.cqe));
  wc.qp_num = qp.qp_num;
  if (wc.status != IBV_WC_SUCCESS) {  // what users must not read then
    wc.opcode = IBV_WC_DRIVER3;
    wc.byte_len = 0xdeadbeef;
    wc.imm_data = 0xdeadbeef;
  }
  const std::uint64_t late = drawn(qp, Dice::completion, qp.completions++, faults.late_completions);
  qp.completion_due = std::max(qp.completion_due, now_ + late);
  cq.hidden.push_back({wc, receive, sequence, qp.completion_due});
  show(cq);
}

void FakeFabric::Wire::complete_send(FakeQp& qp, const FakeRequest& request, ibv_wc_status status) {
  ibv_wc wc{};
  wc.wr_id = request.wr.wr_id;
  wc.status = status;
  wc.opcode = request.wr.opcode == IBV_WR_SEND ? IBV_WC_SEND : IBV_WC_RDMA_WRITE;
  complete(qp, false, request.sequence, wc);
}

void FakeFabric::Wire::complete_receive(FakeQp& qp, const FakeReceive& receive, ibv_wc wc) {
  wc.wr_id = receive.id;
  complete(qp, true, receive.sequence, wc);
}

void FakeFabric::Wire::show(FakeCq& cq) {
  const std::size_t before = cq.visible.size();
  for (const FakeCompletion& one : std::exchange(cq.hidden, {}))
    (one.due <= now_ ? cq.visible : cq.hidden).push_back(one);
  if (cq.hidden.empty()) {
    hiding_.erase(&cq);
  } else {
    hiding_.insert(&cq);
    busy_ = true;
  }
  if (cq.visible.size() == before || !std::exchange(cq.armed, false)) return;
  FakeChannel& channel = channels.at(cq.channel);
  channel.events.push_back(&cq);
  add_event(channel.fd);
}

void FakeFabric::Wire::drop(FakeCq& cq) {
  hiding_.erase(&cq);
  completion_queues.remove(cq);
}

void FakeFabric::Wire::take(const FakeCompletion& completion) {
  const auto found = by_number.find(completion.wc.qp_num);
  if (found == by_number.end()) return;
  FakeQp& qp = *found->second;
  std::uint64_t& freed = completion.receive ? qp.receives_freed : qp.sends_freed;
  freed = std::max(freed, completion.sequence + 1);
}

void FakeFabric::Wire::raise(FakeContext& context, const ibv_async_event& event) {
  context.events.push_back(event);
  add_event(context.async_fd);
}

void FakeFabric::Wire::raise(FakeQp& qp, ibv_event_type type) {
  ibv_async_event event{};
  event.event_type = type;
  event.element.qp = &qp;
  raise(contexts.at(qp.context), event);
}

void FakeFabric::Wire::raise_at(int host, std::size_t device, unsigned port, ibv_event_type type) {
  ibv_async_event event{};
  event.event_type = type;
  event.element.port_num = static_cast<int>(port);
  for (const auto& [base, context] : contexts.all())
    if (context->host == host && context->device_index == device) raise(*context, event);
}

FakeQp& FakeFabric::Wire::numbered(std::uint32_t number) {
  const auto found = by_number.find(number);
  if (found == by_number.end()) die(fmt::format("there is no queue pair {}", number));
  return *found->second;
}

}  // namespace rondo::testing
