// SPDX-License-Identifier: Apache-2.0
//
// The functions by which tests change the fabric and look at it.
#include <exception>
#include <string>
#include <utility>

#include "transports/rdma/fake_wire.h"

namespace rondo::testing {

FakeFabric::FakeFabric(std::vector<FakeHost> hosts, FakeFaults faults, std::uint64_t seed)
    : wire_(std::make_shared<Wire>(std::move(hosts), faults, seed)) {}

FakeFabric::~FakeFabric() {
  const base::Locked lock(wire_->mutex);
  const std::string alive = wire_->queue_pairs.describe() + wire_->completion_queues.describe() +
                            wire_->channels.describe() + wire_->regions.describe() +
                            wire_->domains.describe() + wire_->contexts.describe() +
                            (wire_->lists.empty() ? "" : " a list of devices");
  // A test that has failed already may leave anything behind.
  if (!alive.empty() && std::uncaught_exceptions() == 0) die("still alive:" + alive);
}

void FakeFabric::fail(int host, std::string_view verb, int error, int skip, int times) {
  const base::Locked lock(wire_->mutex);
  wire_->failures.push_back({host, std::string(verb), error, skip, times});
}

void FakeFabric::hold(int from, int to) {
  const base::Locked lock(wire_->mutex);
  wire_->held.insert({from, to});
}

void FakeFabric::release(int from, int to) {
  const base::Locked lock(wire_->mutex);
  wire_->held.erase({from, to});
  wire_->move();
}

void FakeFabric::kill(int host) {
  const base::Locked lock(wire_->mutex);
  wire_->host(host).dead = true;
  for (const auto& [base, qp] : wire_->queue_pairs.all())
    if (qp->host == host) qp->landing.reset();
  wire_->move();
}

void FakeFabric::cut(int host, std::size_t device, unsigned port) {
  const base::Locked lock(wire_->mutex);
  wire_->port(host, device, port).port.state = IBV_PORT_DOWN;
  wire_->raise_at(host, device, port, IBV_EVENT_PORT_ERR);
}

void FakeFabric::mend(int host, std::size_t device, unsigned port) {
  const base::Locked lock(wire_->mutex);
  wire_->port(host, device, port).port.state = IBV_PORT_ACTIVE;
  wire_->raise_at(host, device, port, IBV_EVENT_PORT_ACTIVE);
  wire_->move();
}

void FakeFabric::inject(int host, ibv_event_type type, std::size_t device, unsigned port) {
  if (is_of_queue_pair(type) || type == IBV_EVENT_CQ_ERR) die("inject() is for devices and ports");
  const base::Locked lock(wire_->mutex);
  wire_->raise_at(host, device, port, type);
}

void FakeFabric::inject_at(std::uint32_t queue_pair, ibv_event_type type) {
  if (!is_of_queue_pair(type)) die("inject_at() is for queue pairs");
  const base::Locked lock(wire_->mutex);
  wire_->raise(wire_->numbered(queue_pair), type);
}

void FakeFabric::force_error(std::uint32_t queue_pair) {
  const base::Locked lock(wire_->mutex);
  FakeQp& qp = wire_->numbered(queue_pair);
  wire_->raise(qp, IBV_EVENT_QP_FATAL);
  wire_->enter_error(qp);
  wire_->move();
}

FakeCounts FakeFabric::counts(int host) const {
  const base::Locked lock(wire_->mutex);
  return wire_->host(host).counts;
}

FakeCounts FakeFabric::counts() const {
  const base::Locked lock(wire_->mutex);
  FakeCounts all;
  for (const HostState& host : wire_->hosts) {
    const FakeCounts& one = host.counts;
    all.registrations += one.registrations;
    all.queue_pairs += one.queue_pairs;
    all.registrations_made += one.registrations_made;
    all.queue_pairs_made += one.queue_pairs_made;
    all.send_posts += one.send_posts;
    all.receive_posts += one.receive_posts;
    for (std::size_t i = 0; i < all.bytes.size(); ++i) {
      all.requests[i] += one.requests[i];
      all.bytes[i] += one.bytes[i];
    }
  }
  return all;
}

std::vector<std::uint32_t> FakeFabric::queue_pairs(int host) const {
  const base::Locked lock(wire_->mutex);
  std::vector<std::uint32_t> numbers;
  for (const auto& [number, qp] : wire_->by_number)
    if (qp->host == host) numbers.push_back(number);
  return numbers;
}

}  // namespace rondo::testing
