// SPDX-License-Identifier: Apache-2.0
// The fake fabric itself: two queue pairs over it, and what each kind of failure looks like.
#include "transports/rdma/fake_verbs.h"

#include <endian.h>
#include <fcntl.h>
#include <poll.h>

#include <cerrno>
#include <cstring>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "catch.h"

namespace rondo::testing {
namespace {

constexpr int needed_for_init =
    IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS;
constexpr int needed_to_receive = IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN |
                                  IBV_QP_RQ_PSN | IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER;
constexpr int needed_to_send = IBV_QP_STATE | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY |
                               IBV_QP_SQ_PSN | IBV_QP_MAX_QP_RD_ATOMIC;
constexpr unsigned routed_gid = 3;  // RoCE v2 with IPv4

// One rank: a device, registered memory and a queue pair.
struct End {
  explicit End(FakeFabric& fabric, int host, std::uint32_t depth = 8) : verbs(fabric.verbs(host)) {
    int count = 0;
    ibv_device** const list = verbs->get_device_list(&count);
    REQUIRE(count == 1);
    context = verbs->open_device(list[0]);
    verbs->free_device_list(list);
    domain = verbs->alloc_pd(context);
    region = verbs->reg_mr(domain, memory.data(), memory.size(),
                           IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE);
    channel = verbs->create_comp_channel(context);
    ::fcntl(channel->fd, F_SETFL, O_NONBLOCK);
    ::fcntl(context->async_fd, F_SETFL, O_NONBLOCK);
    cq = verbs->create_cq(context, 64, channel);
    make(depth);
  }
  ~End() {
    if (qp != nullptr) CHECK(verbs->destroy_qp(qp) == 0);
    CHECK(verbs->destroy_cq(cq) == 0);
    CHECK(verbs->destroy_comp_channel(channel) == 0);
    if (region != nullptr) CHECK(verbs->dereg_mr(region) == 0);
    CHECK(verbs->dealloc_pd(domain) == 0);
    CHECK(verbs->close_device(context) == 0);
  }
  End(const End&) = delete;
  End& operator=(const End&) = delete;

  void make(std::uint32_t depth) {
    ibv_qp_init_attr wanted{};
    wanted.send_cq = wanted.recv_cq = cq;
    wanted.qp_type = IBV_QPT_RC;
    wanted.cap = {depth, depth, 2, 1, 20};
    qp = verbs->create_qp(domain, &wanted);
    REQUIRE(qp != nullptr);
    CHECK(wanted.cap.max_inline_data == 32);
  }
  int initialize(int mask = needed_for_init) {
    ibv_qp_attr wanted{};
    wanted.qp_state = IBV_QPS_INIT;
    wanted.port_num = 1;
    wanted.qp_access_flags = IBV_ACCESS_REMOTE_WRITE;
    return verbs->modify_qp(qp, &wanted, mask);
  }
  // How this end is reached.
  ibv_ah_attr address() {
    ibv_ah_attr address{};
    address.port_num = 1;
    ibv_port_attr port{};
    REQUIRE(verbs->query_port(context, 1, &port) == 0);
    address.dlid = port.lid;
    if (port.link_layer == IBV_LINK_LAYER_INFINIBAND) return address;
    ibv_gid_entry entry{};
    REQUIRE(verbs->query_gid(context, 1, routed_gid, &entry) == 0);
    address.is_global = 1;
    address.grh.dgid = entry.gid;
    address.grh.sgid_index = routed_gid;
    return address;
  }
  int be_ready_to_receive(End& peer, std::uint32_t packet, ibv_mtu mtu) {
    ibv_qp_attr wanted{};
    wanted.qp_state = IBV_QPS_RTR;
    wanted.path_mtu = mtu;
    wanted.dest_qp_num = peer.qp->qp_num;
    wanted.rq_psn = packet;
    wanted.ah_attr = peer.address();
    return verbs->modify_qp(qp, &wanted, needed_to_receive);
  }
  int be_ready_to_send(std::uint32_t packet, std::uint8_t attempts, std::uint8_t not_ready) {
    ibv_qp_attr wanted{};
    wanted.qp_state = IBV_QPS_RTS;
    wanted.sq_psn = packet;
    wanted.retry_cnt = attempts;
    wanted.rnr_retry = not_ready;
    return verbs->modify_qp(qp, &wanted, needed_to_send);
  }
  void enter_error() {
    ibv_qp_attr wanted{};
    wanted.qp_state = IBV_QPS_ERR;
    CHECK(verbs->modify_qp(qp, &wanted, IBV_QP_STATE) == 0);
  }

  struct Piece {
    std::size_t from = 0, bytes = 0, to = 0;
  };
  int post(ibv_wr_opcode opcode, std::uint64_t id, const End& peer, Piece piece,
           unsigned flags = IBV_SEND_SIGNALED, std::uint32_t wrong_key = 0) {
    ibv_sge part{reinterpret_cast<std::uintptr_t>(memory.data()) + piece.from,
                 static_cast<std::uint32_t>(piece.bytes), region->lkey};
    ibv_send_wr wanted{};
    wanted.wr_id = id;
    wanted.sg_list = &part;
    wanted.num_sge = 1;
    wanted.opcode = opcode;
    wanted.send_flags = flags;
    wanted.imm_data = htobe32(77);
    wanted.wr.rdma.remote_addr = reinterpret_cast<std::uintptr_t>(peer.memory.data()) + piece.to;
    wanted.wr.rdma.rkey = wrong_key != 0 ? wrong_key : peer.region ? peer.region->rkey : 0;
    ibv_send_wr* bad = nullptr;
    return verbs->post_send(qp, &wanted, &bad);
  }
  int receive(std::uint64_t id, std::size_t at = 0, std::size_t bytes = 0) {
    ibv_sge part{reinterpret_cast<std::uintptr_t>(memory.data()) + at,
                 static_cast<std::uint32_t>(bytes), region->lkey};
    ibv_recv_wr wanted{};
    wanted.wr_id = id;
    wanted.sg_list = &part;
    wanted.num_sge = bytes > 0 ? 1 : 0;
    ibv_recv_wr* bad = nullptr;
    return verbs->post_recv(qp, &wanted, &bad);
  }
  // Waits for the next completion.
  ibv_wc poll() {
    ibv_wc wc{};
    while (verbs->poll_cq(cq, 1, &wc) == 0) std::this_thread::yield();
    return wc;
  }
  // Whether so many calls give none.
  bool quiet(int calls = 50) {
    ibv_wc wc{};
    for (int i = 0; i < calls; ++i)
      if (verbs->poll_cq(cq, 1, &wc) != 0) return false;
    return true;
  }
  ibv_event_type event() {
    ibv_async_event event{};
    REQUIRE(verbs->get_async_event(context, &event) == 0);
    verbs->ack_async_event(&event);
    return event.event_type;
  }
  void check_next(std::uint64_t id, ibv_wc_status status) {
    const ibv_wc wc = poll();
    CHECK(wc.wr_id == id);
    CHECK(wc.status == status);
  }

  std::shared_ptr<rdma::Verbs> verbs;
  std::vector<char> memory = std::vector<char>(4096, '.');
  ibv_context* context = nullptr;
  ibv_pd* domain = nullptr;
  ibv_mr* region = nullptr;
  ibv_comp_channel* channel = nullptr;
  ibv_cq* cq = nullptr;
  ibv_qp* qp = nullptr;
};

struct Options {
  std::uint8_t attempts = 6, not_ready = 6;
  std::uint32_t wrong_packet = 0;  // added to the packet number that b expects
  ibv_mtu other_mtu = IBV_MTU_1024;
  std::uint32_t depth = 8;
  std::vector<FakeHost> hosts = roce_hosts(2);
};

struct Two {
  explicit Two(const FakeFaults& faults = {}, const Options& options = {}, std::uint64_t seed = 1)
      : fabric(options.hosts, faults, seed),
        a(fabric, 0, options.depth),
        b(fabric, 1, options.depth) {
    for (End* const end : {&a, &b}) CHECK(end->initialize() == 0);
    CHECK(a.be_ready_to_receive(b, 200, IBV_MTU_1024) == 0);
    CHECK(b.be_ready_to_receive(a, 100 + options.wrong_packet, options.other_mtu) == 0);
    CHECK(a.be_ready_to_send(100, options.attempts, options.not_ready) == 0);
    CHECK(b.be_ready_to_send(200, options.attempts, options.not_ready) == 0);
    std::memcpy(a.memory.data(), "0123456789", 10);
  }
  FakeFabric fabric;
  End a, b;
};

std::string text(const End& end, std::size_t at, std::size_t bytes) {
  return {end.memory.data() + at, bytes};
}

}  // namespace

TEST_CASE("fake verbs: writes, writes with a mark and messages arrive in order") {
  FakeFaults faults;
  const bool late = GENERATE(false, true);
  if (late) {
    faults.delay = 5;
    faults.late_writes = 7;
    faults.late_completions = 9;
  }
  Options options;
  if (GENERATE(false, true)) options.hosts = {infiniband_host(0), infiniband_host(1)};
  Two two(faults, options, GENERATE(1, 2, 3));
  for (std::uint64_t i = 0; i < 4; ++i) CHECK(two.b.receive(10 + i, 2048 + i * 16, 16) == 0);
  for (std::uint64_t i = 0; i < 2; ++i) {
    CHECK(two.a.post(IBV_WR_RDMA_WRITE, 1, two.b, {i, 4, 512 + 8 * i}, 0) == 0);
    CHECK(two.a.post(IBV_WR_RDMA_WRITE_WITH_IMM, 2, two.b, {4, 4, 516 + 8 * i}, 0) == 0);
    CHECK(two.a.post(IBV_WR_SEND, 3 + i, two.b, {0, 10, 0}) == 0);
  }
  for (std::uint64_t i = 0; i < 2; ++i) {
    const ibv_wc mark = two.b.poll();
    CHECK(mark.wr_id == 10 + 2 * i);
    CHECK(mark.opcode == IBV_WC_RECV_RDMA_WITH_IMM);
    CHECK((mark.wc_flags & IBV_WC_WITH_IMM) != 0);
    CHECK(be32toh(mark.imm_data) == 77);
    CHECK(mark.qp_num == two.b.qp->qp_num);
    CHECK(mark.byte_len == 4);
    CHECK(text(two.b, 512 + 8 * i, 8) == (i == 0 ? "01234567" : "12344567"));
    const ibv_wc message = two.b.poll();
    CHECK(message.opcode == IBV_WC_RECV);
    CHECK(message.byte_len == 10);
    CHECK(text(two.b, 2048 + (2 * i + 1) * 16, 11) == "0123456789.");
    two.a.check_next(3 + i, IBV_WC_SUCCESS);
  }
  CHECK(two.a.quiet());
  const FakeCounts counts = two.fabric.counts();
  CHECK(counts.bytes == std::array<std::uint64_t, 3>{8, 8, 20});
  CHECK(counts.send_posts == 6);
  CHECK(counts.registrations == 2);
  CHECK(counts.queue_pairs == 2);
}

TEST_CASE("fake verbs: an error at the receiver ends both queue pairs, and the rest is flushed") {
  Two two;
  CHECK(two.b.receive(10, 0, 4) == 0);
  CHECK(two.b.receive(11) == 0);
  two.fabric.hold(0, 1);
  ibv_wc_status status = IBV_WC_REM_ACCESS_ERR;
  bool at_receive = false;
  SECTION("wrong key") {
    two.a.post(IBV_WR_RDMA_WRITE, 1, two.b, {0, 4, 0}, 0, two.b.region->lkey);
  }
  SECTION("out of bounds") {
    two.a.post(IBV_WR_RDMA_WRITE, 1, two.b, {0, 4, 4093}, 0);
  }
  SECTION("memory that is registered no more") {
    two.a.post(IBV_WR_RDMA_WRITE, 1, two.b, {0, 4, 0}, 0);
    two.b.verbs->dereg_mr(std::exchange(two.b.region, nullptr));
  }
  SECTION("message too long") {
    two.a.post(IBV_WR_SEND, 1, two.b, {0, 5, 0}, 0);
    status = IBV_WC_REM_INV_REQ_ERR;
    at_receive = true;
  }
  CHECK(two.a.post(IBV_WR_RDMA_WRITE, 2, two.b, {0, 4, 0}, 0) == 0);
  CHECK(two.a.quiet());
  two.fabric.release(0, 1);
  two.a.check_next(1, status);
  two.a.check_next(2, IBV_WC_WR_FLUSH_ERR);
  two.b.check_next(10, at_receive ? IBV_WC_LOC_LEN_ERR : IBV_WC_WR_FLUSH_ERR);
  two.b.check_next(11, IBV_WC_WR_FLUSH_ERR);
  CHECK(text(two.b, 0, 4) == "....");
  if (!at_receive) CHECK(two.b.event() == IBV_EVENT_QP_ACCESS_ERR);
  CHECK(two.a.post(IBV_WR_SEND, 3, two.b, {0, 4, 0}, 0) == 0);
  two.a.check_next(3, IBV_WC_WR_FLUSH_ERR);
}

TEST_CASE("fake verbs: a receiver without receives, and one that cannot be reached") {
  Options options;
  SECTION("not ready") {
    Two two;
    CHECK(two.a.post(IBV_WR_SEND, 1, two.b, {0, 4, 0}) == 0);
    two.a.check_next(1, IBV_WC_RNR_RETRY_EXC_ERR);
    CHECK(two.b.quiet());
  }
  SECTION("not ready, but patient") {
    options.not_ready = 7;
    Two two({}, options);
    CHECK(two.a.post(IBV_WR_SEND, 1, two.b, {0, 4, 0}) == 0);
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
    CHECK(two.a.quiet());
    CHECK(two.b.receive(10, 64, 4) == 0);
    two.a.check_next(1, IBV_WC_SUCCESS);
  }
  SECTION("other packet number") {
    options.wrong_packet = 1;
  }
  SECTION("other MTU") {
    options.other_mtu = IBV_MTU_2048;
  }
  if (options.wrong_packet != 0 || options.other_mtu != IBV_MTU_1024) {
    Two two({}, options);
    two.a.post(IBV_WR_RDMA_WRITE, 1, two.b, {0, 4, 0}, 0);
    two.a.check_next(1, IBV_WC_RETRY_EXC_ERR);
  }
  SECTION("gone, dead, cut") {
    options.attempts = GENERATE(6, 7);
    const int kind = GENERATE(0, 1, 2, 3);
    Two two({}, options);
    if (kind == 0) two.b.verbs->destroy_qp(std::exchange(two.b.qp, nullptr));
    if (kind == 1) two.b.enter_error();
    if (kind == 2) two.fabric.kill(1);
    if (kind == 3) two.fabric.cut(1);
    two.a.post(IBV_WR_RDMA_WRITE, 1, two.b, {0, 4, 0}, 0);
    two.a.post(IBV_WR_RDMA_WRITE, 2, two.b, {0, 4, 0}, 0);
    if (options.attempts == 7) {
      std::this_thread::sleep_for(std::chrono::milliseconds(10));
      CHECK(two.a.quiet());
    } else {
      two.a.check_next(1, IBV_WC_RETRY_EXC_ERR);
      two.a.check_next(2, IBV_WC_WR_FLUSH_ERR);
    }
    if (kind == 3) CHECK(two.b.event() == IBV_EVENT_PORT_ERR);
    CHECK(text(two.b, 0, 4) == "....");
  }
}

TEST_CASE("fake verbs: nothing lands once the receiver has left its queue pair") {
  FakeFaults faults;
  faults.late_writes = 1000;
  faults.tick = std::chrono::seconds(10);
  Two two(faults);
  SECTION("what was acknowledged may still be missing") {
    CHECK(two.a.post(IBV_WR_RDMA_WRITE, 1, two.b, {0, 4, 0}) == 0);
    two.a.check_next(1, IBV_WC_SUCCESS);
    CHECK(text(two.b, 0, 4) == "....");
    SECTION("error") {
      two.b.enter_error();
    }
    SECTION("destroyed") {
      two.b.verbs->destroy_qp(std::exchange(two.b.qp, nullptr));
    }
    SECTION("deregistered") {
      two.b.verbs->dereg_mr(std::exchange(two.b.region, nullptr));
    }
    CHECK(two.a.quiet(1000));
    CHECK(text(two.b, 0, 4) == "....");
  }
  SECTION("a later request makes it land first") {
    CHECK(two.a.post(IBV_WR_RDMA_WRITE, 1, two.b, {0, 4, 0}, 0) == 0);
    CHECK(two.a.post(IBV_WR_RDMA_WRITE, 2, two.b, {0, 0, 0}) == 0);
    two.a.check_next(2, IBV_WC_SUCCESS);
    CHECK(text(two.b, 0, 4) == "0123");
  }
}

TEST_CASE("fake verbs: queues have their depth, and only polled completions free them") {
  Options options;
  options.depth = 2;
  Two two({}, options);
  CHECK(two.a.post(IBV_WR_RDMA_WRITE, 1, two.b, {0, 4, 0}, 0) == 0);
  CHECK(two.a.post(IBV_WR_RDMA_WRITE, 2, two.b, {0, 4, 0}) == 0);
  CHECK(two.a.post(IBV_WR_RDMA_WRITE, 3, two.b, {0, 4, 0}) == ENOMEM);
  two.a.check_next(2, IBV_WC_SUCCESS);
  for (int i = 0; i < 2; ++i) CHECK(two.a.post(IBV_WR_RDMA_WRITE, 4, two.b, {0, 4, 0}, 0) == 0);
  CHECK(two.a.post(IBV_WR_RDMA_WRITE, 3, two.b, {0, 4, 0}) == ENOMEM);
  for (int i = 0; i < 2; ++i) CHECK(two.b.receive(1) == 0);
  CHECK(two.b.receive(1) == ENOMEM);
}

TEST_CASE("fake verbs: inline data is copied at once") {
  Two two;
  two.fabric.hold(0, 1);
  CHECK(two.a.post(IBV_WR_RDMA_WRITE, 1, two.b, {0, 33, 0}, IBV_SEND_INLINE) == EINVAL);
  CHECK(two.a.post(IBV_WR_RDMA_WRITE, 1, two.b, {0, 4, 0}, IBV_SEND_INLINE) == 0);
  CHECK(two.a.post(IBV_WR_RDMA_WRITE, 2, two.b, {0, 4, 8}) == 0);
  std::memcpy(two.a.memory.data(), "new!", 4);
  two.fabric.release(0, 1);
  two.a.check_next(2, IBV_WC_SUCCESS);
  CHECK(text(two.b, 0, 12) == "0123....new!");
}

TEST_CASE("fake verbs: a sleeping receiver is woken, also by what is late") {
  FakeFaults faults;
  faults.delay = faults.late_completions = GENERATE(0, 20);
  Two two(faults);
  CHECK(two.b.receive(10) == 0);
  ibv_cq* cq = nullptr;
  CHECK(two.b.verbs->get_cq_event(two.b.channel, &cq) == -1);
  CHECK(errno == EAGAIN);
  CHECK(two.b.verbs->req_notify_cq(two.b.cq) == 0);
  std::thread sender([&] { two.a.post(IBV_WR_RDMA_WRITE_WITH_IMM, 1, two.b, {0, 4, 0}); });
  pollfd bell{two.b.channel->fd, POLLIN, 0};
  CHECK(::poll(&bell, 1, 10000) == 1);
  sender.join();
  CHECK(two.b.verbs->get_cq_event(two.b.channel, &cq) == 0);
  CHECK(cq == two.b.cq);
  two.b.verbs->ack_cq_events(cq, 1);
  two.b.check_next(10, IBV_WC_SUCCESS);
  CHECK(text(two.b, 0, 4) == "0123");
  CHECK(::poll(&bell, 1, 0) == 0);  // one request, one event
}

TEST_CASE("fake verbs: states need their attributes") {
  FakeFabric fabric(roce_hosts(2));
  End a(fabric, 0), b(fabric, 1);
  CHECK(a.post(IBV_WR_SEND, 1, b, {0, 4, 0}) == EINVAL);
  CHECK(a.receive(1) == EINVAL);
  CHECK(a.be_ready_to_receive(b, 1, IBV_MTU_1024) == EINVAL);
  CHECK(a.initialize(needed_for_init & ~IBV_QP_PORT) == EINVAL);
  CHECK(a.initialize(needed_for_init | IBV_QP_QKEY) == EINVAL);
  CHECK(a.initialize() == 0);
  CHECK(a.receive(1) == 0);
  CHECK(a.be_ready_to_receive(b, 1 << 24, IBV_MTU_1024) == EINVAL);
  CHECK(a.be_ready_to_receive(b, 1, IBV_MTU_1024) == 0);
  CHECK(a.post(IBV_WR_SEND, 1, b, {0, 4, 0}) == EINVAL);
  CHECK(a.be_ready_to_send(1, 6, 6) == 0);
  CHECK(a.verbs->dealloc_pd(a.domain) == EBUSY);
  CHECK(a.verbs->destroy_cq(a.cq) == EBUSY);
  CHECK(a.verbs->destroy_comp_channel(a.channel) == EBUSY);
  CHECK(a.verbs->close_device(a.context) == EBUSY);
  fabric.force_error(a.qp->qp_num);
  CHECK(a.event() == IBV_EVENT_QP_FATAL);
  a.check_next(1, IBV_WC_WR_FLUSH_ERR);
  fabric.inject(0, IBV_EVENT_DEVICE_FATAL);
  CHECK(a.event() == IBV_EVENT_DEVICE_FATAL);
}

TEST_CASE("fake verbs: calls fail when a test wants it") {
  FakeFabric fabric(roce_hosts(2));
  End a(fabric, 0);
  fabric.fail(0, "reg_mr", ENOMEM, 1);
  std::vector<char> memory(8);
  std::vector<ibv_mr*> made;
  for (int i = 0; i < 3; ++i)
    made.push_back(a.verbs->reg_mr(a.domain, memory.data(), 8, IBV_ACCESS_LOCAL_WRITE));
  CHECK(made[1] == nullptr);
  CHECK(errno == ENOMEM);
  for (ibv_mr* const one : {made[0], made[2]}) CHECK(a.verbs->dereg_mr(one) == 0);
  fabric.fail(-1, "modify_qp", ETIMEDOUT);
  CHECK(a.initialize() == ETIMEDOUT);
  CHECK(a.initialize() == 0);
  CHECK(a.verbs->reg_mr(a.domain, memory.data(), 8, IBV_ACCESS_REMOTE_WRITE) == nullptr);
  CHECK(errno == EINVAL);
  ibv_gid_entry entry{};
  CHECK(a.verbs->query_gid(a.context, 1, 4, &entry) == EINVAL);
}

TEST_CASE("fake verbs: two threads and every delay") {
  FakeFaults faults;
  faults.delay = 3;
  faults.late_writes = faults.late_completions = 5;
  Options options;
  options.not_ready = 7;
  Two two(faults, options);
  constexpr int rounds = 300;
  std::thread receiver([&] {
    for (int i = 0; i < rounds; ++i) {
      two.b.receive(static_cast<std::uint64_t>(i));
      if (two.b.poll().wr_id != static_cast<std::uint64_t>(i)) std::abort();
      const char wanted = static_cast<char>('a' + i % 26);
      if (text(two.b, 100 + 2 * static_cast<std::size_t>(i), 2) != std::string(2, wanted))
        std::abort();
    }
  });
  for (int i = 0; i < rounds; ++i) {
    two.a.memory[0] = static_cast<char>('a' + i % 26);
    const std::size_t to = 100 + 2 * static_cast<std::size_t>(i);
    two.a.post(IBV_WR_RDMA_WRITE, 1, two.b, {0, 1, to}, 0);
    two.a.post(IBV_WR_RDMA_WRITE_WITH_IMM, 2, two.b, {0, 1, to + 1});
    two.a.check_next(2, IBV_WC_SUCCESS);
  }
  receiver.join();
}

}  // namespace rondo::testing
