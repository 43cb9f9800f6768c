// SPDX-License-Identifier: Apache-2.0
//
// An RDMA fabric in one process, for tests: hosts, devices and reliable connections between them,
// as strict as real devices or stricter. Wrong use that a real device cannot report (an overrun of
// a completion queue, an object that is not alive) aborts with a message.
#pragma once

#include <array>
#include <chrono>
#include <cstdint>
#include <memory>
#include <string_view>
#include <vector>

#include "transports/rdma/fake_host.h"
#include "transports/rdma/verbs.h"

namespace rondo::testing {

// Faults that the seed draws. Each call of poll_cq is a tick of the fabric; while something is
// delayed, a thread of the fabric adds one every `tick`.
struct FakeFaults {
  // A request moves 0 to `delay` ticks after it was posted. Requests of one queue pair stay in
  // order, those of different ones do not.
  std::uint32_t delay = 0;
  // The payload of a plain write lands 0 to `late_writes` ticks after it was acknowledged, and
  // before anything later on its queue pair has an effect. The acknowledgement (the sender's
  // completion) does not mean that the payload is in memory.
  std::uint32_t late_writes = 0;
  // A completion becomes visible 0 to `late_completions` ticks late. Those of one queue pair stay
  // in order.
  std::uint32_t late_completions = 0;
  // Completions of a destroyed queue pair stay in the completion queue. Devices differ in this.
  bool stale_completions = false;
  // How long a queue pair tries in all to reach a peer, unless its retry_cnt is 7: then for ever.
  std::chrono::nanoseconds retry_delay = std::chrono::milliseconds(5);
  // How long it waits for a receive, rnr_retry times (7: for ever).
  std::chrono::nanoseconds rnr_delay = std::chrono::milliseconds(1);
  std::chrono::nanoseconds tick = std::chrono::microseconds(100);
};

struct FakeCounts {
  int registrations = 0, queue_pairs = 0;  // alive
  std::uint64_t registrations_made = 0, queue_pairs_made = 0;
  std::uint64_t send_posts = 0, receive_posts = 0;  // calls of post_send and post_recv
  // Counts what has arrived, by the opcode of its sender: IBV_WR_RDMA_WRITE,
  // IBV_WR_RDMA_WRITE_WITH_IMM, IBV_WR_SEND.
  std::array<std::uint64_t, 3> requests{}, bytes{};
};

// Thread-safe: one mutex, also held while payload is copied. So once modify_qp(ERR), destroy_qp or
// dereg_mr of a receiver has returned, nothing lands there any more.
class FakeFabric {
 public:
  explicit FakeFabric(std::vector<FakeHost> hosts, FakeFaults faults = {}, std::uint64_t seed = 0);
  FakeFabric(const FakeFabric&) = delete;
  FakeFabric& operator=(const FakeFabric&) = delete;
  // Aborts with a message when an object of the verbs is still alive.
  ~FakeFabric();

  // The devices of a host. Several ranks may have the verbs of one host.
  std::shared_ptr<rdma::Verbs> verbs(int host);

  // The named verb ("reg_mr") fails on this host (-1: on every host): `skip` calls succeed, then
  // `times` calls fail (-1: all).
  void fail(int host, std::string_view verb, int error, int skip = 0, int times = 1);

  // Work that `from` posts to `to` waits until release(), without a retry or a loss.
  void hold(int from, int to);
  void release(int from, int to);
  // Nothing of this host moves any more, and it tells no one. Its objects can still be destroyed.
  void kill(int host);
  // The port goes down (IBV_EVENT_PORT_ERR) and loses all packets; mend() brings it up again
  // (IBV_EVENT_PORT_ACTIVE).
  void cut(int host, std::size_t device = 0, unsigned port = 1);
  void mend(int host, std::size_t device = 0, unsigned port = 1);
  // An event of the device or of a port, in every open context of the device.
  void inject(int host, ibv_event_type type, std::size_t device = 0, unsigned port = 1);
  // An event of a queue pair, which itself is left as it is.
  void inject_at(std::uint32_t queue_pair, ibv_event_type type);
  // Puts a queue pair into the error state, with IBV_EVENT_QP_FATAL.
  void force_error(std::uint32_t queue_pair);

  FakeCounts counts(int host) const;
  FakeCounts counts() const;
  // The numbers of the queue pairs of a host that are alive, in the order in which they were made.
  std::vector<std::uint32_t> queue_pairs(int host) const;

  class Wire;

 private:
  std::shared_ptr<Wire> wire_;
};

}  // namespace rondo::testing
