// SPDX-License-Identifier: Apache-2.0
#include "transports/rdma/path.h"

#include <fmt/format.h>
#include <openssl/rand.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include <rondo/error.h>

#include "base/text.h"

namespace rondo::rdma {
namespace {

// A request that uses no memory of the pool and ends no frame needs no completion of its own. Every
// so many one is asked for, or the send queue would fill up.
constexpr std::uint32_t most_unsignalled = 16;
// Lists what a queue pair is asked to copy at once, from the most on. Devices refuse what is too
// much.
constexpr std::array<std::uint32_t, 5> inline_sizes = {512, 256, 192, 128, 0};
constexpr std::uint8_t receiver_not_ready_timer = 12;    // 0.64 ms
constexpr std::uint8_t receiver_not_ready_attempts = 6;  // 7 would mean "for ever"
constexpr std::uint8_t hops = 64;
constexpr std::uint64_t unit_ns = 4096, longest_patience_ns = 2'000'000'000;

// Random, so that packets of an earlier connection with the same numbers are not taken for new.
std::uint32_t random_packet_number() {
  std::uint32_t value = 0;
  if (RAND_bytes(reinterpret_cast<unsigned char*>(&value), sizeof value) != 1)
    throw Error(Errc::system, "the system gives no random bytes");
  return value & 0xffffffu;
}

ibv_ah_attr address_of(const Port& port, const PortAddress& peer, std::uint8_t service_level,
                       std::uint8_t traffic_class) noexcept {
  ibv_ah_attr address{};
  address.port_num = port.number;
  address.sl = service_level;
  if (peer.kind == GidKind::ib) {
    address.dlid = peer.lid;
    return address;
  }
  address.is_global = 1;
  std::memcpy(address.grh.dgid.raw, peer.gid.data(), peer.gid.size());
  address.grh.sgid_index = port.gid_index;
  address.grh.hop_limit = hops;
  address.grh.traffic_class = traffic_class;
  return address;
}

}  // namespace

Patience patience_for(std::uint64_t deadline_ns) noexcept {
  Patience patience;
  const std::uint64_t most = std::min(deadline_ns / 4, longest_patience_ns);
  // The first attempt and the others, each up to four times the nominal time (InfiniBand
  // Architecture Specification 1, 9.7.6.1.3).
  const auto total = [&](unsigned timeout) {
    return (unit_ns << timeout) * (patience.attempts + 1u) * 4;
  };
  patience.timeout = 8;
  while (patience.timeout < 16 && total(patience.timeout + 1u) <= most) ++patience.timeout;
  return patience;
}

Path::Path(Device& device, const Port& port, ibv_cq* completions, std::uint32_t number)
    : device_(device), port_(port), number_(number), first_packet_(random_packet_number()) {
  create(completions);
  try {
    initialize();
  } catch (...) {
    destroy();
    throw;
  }
}

void Path::create(ibv_cq* completions) {
  for (const std::uint32_t most_inline : inline_sizes) {
    ibv_qp_init_attr wanted{};
    wanted.send_cq = wanted.recv_cq = completions;
    wanted.qp_type = IBV_QPT_RC;
    wanted.cap.max_send_wr = send_depth;
    wanted.cap.max_recv_wr = receive_depth;
    wanted.cap.max_send_sge = 2;
    wanted.cap.max_recv_sge = 1;
    wanted.cap.max_inline_data = most_inline;
    queue_pair_ = device_.verbs().create_qp(device_.domain(), &wanted);
    if (queue_pair_ == nullptr) continue;
    most_inline_ = wanted.cap.max_inline_data;
    queue_pair_number_ = queue_pair_->qp_num;
    return;
  }
  check(errno, "cannot make a queue pair");
}

void Path::check(int error, const char* what) const {
  if (error == 0) return;
  throw Error(Errc::system,
              fmt::format("{}: {}: {}", name_of(port_), what, base::describe_errno(error)));
}

void Path::initialize() {
  ibv_qp_attr wanted{};
  wanted.qp_state = IBV_QPS_INIT;
  wanted.port_num = port_.number;
  wanted.qp_access_flags = IBV_ACCESS_REMOTE_WRITE;
  check(device_.verbs().modify_qp(
            queue_pair_, &wanted,
            IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS),
        "cannot initialize a queue pair");
}

PathSetup Path::setup(std::uint32_t slots_key) const noexcept {
  return {queue_pair_number_, first_packet_, slots_key,
          static_cast<std::uint32_t>(port_.device_index)};
}

void Path::post_receives(std::span<std::byte> messages, std::uint32_t key) {
  messages_ = messages;
  messages_key_ = key;
  for (std::uint32_t i = 0; i < receive_depth; ++i) receive_again(i);
}

void Path::receive_again(std::uint32_t index) {
  if (queue_pair_ == nullptr) return;
  used_receives_[used_receive_count_++] = index;
  if (used_receive_count_ < receive_batch) return;
  used_receive_count_ = 0;
  std::array<ibv_sge, receive_batch> parts{};
  std::array<ibv_recv_wr, receive_batch> requests{};
  for (std::size_t i = 0; i < receive_batch; ++i) {
    const std::uint32_t number = used_receives_[i];
    requests[i].wr_id = receive_bit | identity(number);
    if (i + 1 < receive_batch) requests[i].next = &requests[i + 1];
    if (messages_.empty()) continue;
    parts[i] = {reinterpret_cast<std::uintptr_t>(message(number).data()), control_bytes,
                messages_key_};
    requests[i].sg_list = &parts[i];
    requests[i].num_sge = 1;
  }
  ibv_recv_wr* bad = nullptr;
  check(device_.verbs().post_recv(queue_pair_, requests.data(), &bad), "cannot post receives");
}

void Path::connect(const PortAddress& peer, const PathSetup& theirs, Patience patience,
                   std::uint8_t service_level, std::uint8_t traffic_class) {
  const auto mtu = std::min(port_.mtu, static_cast<ibv_mtu>(peer.mtu));
  route_ = fmt::format("{} GID {} {} -> {} GID {} {}, {}, MTU {}", name_of(port_), port_.gid_index,
                       to_text(port_.gid), peer.device, peer.gid_index, to_text(peer.gid),
                       name_of(port_.kind), 128u << static_cast<unsigned>(mtu));
  ibv_qp_attr wanted{};
  wanted.qp_state = IBV_QPS_RTR;
  wanted.path_mtu = mtu;
  wanted.dest_qp_num = theirs.queue_pair;
  wanted.rq_psn = theirs.first_packet;
  wanted.min_rnr_timer = receiver_not_ready_timer;
  wanted.ah_attr = address_of(port_, peer, service_level, traffic_class);
  const auto move = [&](int mask, const char* state) {
    if (const int error = device_.verbs().modify_qp(queue_pair_, &wanted, mask); error != 0)
      throw Error(Errc::system, fmt::format("{}: the queue pair cannot be made {}: {}", route_,
                                            state, base::describe_errno(error)));
  };
  move(IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN |
           IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER,
       "ready to receive");
  wanted = {};
  wanted.qp_state = IBV_QPS_RTS;
  wanted.timeout = patience.timeout;
  wanted.retry_cnt = patience.attempts;
  wanted.rnr_retry = receiver_not_ready_attempts;
  wanted.sq_psn = first_packet_;
  move(IBV_QP_STATE | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY | IBV_QP_SQ_PSN |
           IBV_QP_MAX_QP_RD_ATOMIC,
       "ready to send");
}

int Path::post(const Request& request, const Posted& uses) {
  ibv_send_wr wanted{};
  auto parts = request.parts;
  wanted.sg_list = parts.data();
  wanted.num_sge = request.part_count;
  wanted.opcode = request.kind == Request::Kind::write             ? IBV_WR_RDMA_WRITE
                  : request.kind == Request::Kind::write_with_mark ? IBV_WR_RDMA_WRITE_WITH_IMM
                                                                   : IBV_WR_SEND;
  wanted.imm_data = htobe32(request.mark);
  wanted.wr.rdma.remote_addr = request.address;
  wanted.wr.rdma.rkey = request.key;
  wanted.send_flags = request.inlined ? unsigned{IBV_SEND_INLINE} : 0u;
  if (uses.piece >= 0 || uses.frame >= 0) wanted.send_flags |= IBV_SEND_SIGNALED;
  return post(wanted, uses);
}

int Path::post_flush(std::uint64_t address, std::uint32_t key) {
  ibv_send_wr wanted{};
  wanted.opcode = IBV_WR_RDMA_WRITE;
  wanted.wr.rdma.remote_addr = address;
  wanted.wr.rdma.rkey = key;
  wanted.send_flags = IBV_SEND_SIGNALED;
  return post(wanted, {});
}

int Path::post(ibv_send_wr& request, const Posted& uses) {
  if (queue_pair_ == nullptr) return ENOTCONN;
  if (unsignalled_ + 1 >= most_unsignalled) request.send_flags |= IBV_SEND_SIGNALED;
  request.wr_id = identity(posted_);
  ibv_send_wr* bad = nullptr;
  if (const int error = device_.verbs().post_send(queue_pair_, &request, &bad); error != 0)
    return error;
  unsignalled_ = (request.send_flags & IBV_SEND_SIGNALED) != 0 ? 0 : unsignalled_ + 1;
  uses_[posted_++ % send_depth] = uses;
  payload_under_way_ += uses.payload;
  return 0;
}

void Path::destroy() noexcept {
  if (queue_pair_ == nullptr || generation_ != base::process_generation()) return;
  ibv_qp_attr wanted{};
  wanted.qp_state = IBV_QPS_ERR;
  device_.verbs().modify_qp(queue_pair_, &wanted, IBV_QP_STATE);
  device_.verbs().destroy_qp(queue_pair_);
  queue_pair_ = nullptr;
}

}  // namespace rondo::rdma
