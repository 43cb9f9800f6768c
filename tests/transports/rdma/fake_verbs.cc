// SPDX-License-Identifier: Apache-2.0
#include "transports/rdma/fake_verbs.h"

#include <endian.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <string_view>
#include <type_traits>
#include <utility>

#include "transports/rdma/fake_states.h"
#include "transports/rdma/fake_wire.h"

namespace rondo::testing {
namespace {

constexpr std::uint32_t inline_step = 16;  // as devices do, more is granted than was asked for

int open_events() {
  const int descriptor = ::eventfd(0, EFD_CLOEXEC | EFD_SEMAPHORE);
  if (descriptor < 0) die("no eventfd");
  return descriptor;
}

// Blocks or not, as the flags of the descriptor say. False with errno when there is no event.
bool read_event(int descriptor) {
  std::uint64_t one = 0;
  return ::read(descriptor, &one, sizeof one) == sizeof one;
}

// The verbs of one host.
class FakeVerbs final : public rdma::Verbs {
 public:
  FakeVerbs(std::shared_ptr<FakeFabric::Wire> wire, int host)
      : owner_(std::move(wire)), wire_(*owner_), host_(host) {}

  int fork_init() override {
    const base::Locked lock(wire_.mutex);
    return failure("fork_init");
  }

  ibv_device** get_device_list(int* count) override {
    const base::Locked lock(wire_.mutex);
    if (failure("get_device_list") != 0) return nullptr;
    const auto& devices = wire_.host(host_).devices;
    auto list = std::make_unique<ibv_device*[]>(devices.size() + 1);
    for (std::size_t i = 0; i < devices.size(); ++i) list[i] = devices[i].get();
    if (count != nullptr) *count = static_cast<int>(devices.size());
    wire_.lists.insert(list.get());
    return list.release();
  }
  void free_device_list(ibv_device** list) override {
    const base::Locked lock(wire_.mutex);
    if (wire_.lists.erase(list) == 0) die("a list of devices is freed that is not alive");
    delete[] list;
  }
  const char* device_name(ibv_device* device) override { return device->name; }

  ibv_context* open_device(ibv_device* device) override {
    const base::Locked lock(wire_.mutex);
    if (failure("open_device") != 0) return nullptr;
    const auto& devices = wire_.host(host_).devices;
    const auto found = std::ranges::find(devices, device, &std::unique_ptr<ibv_device>::get);
    if (found == devices.end()) die("a device of another host is opened");
    FakeContext& context = wire_.contexts.add();
    context.device = device;
    context.async_fd = open_events();
    context.cmd_fd = -1;
    context.num_comp_vectors = 1;
    context.host = host_;
    context.device_index = static_cast<std::size_t>(found - devices.begin());
    return &context;
  }
  int close_device(ibv_context* base) override {
    const base::Locked lock(wire_.mutex);
    FakeContext& context = own(wire_.contexts, base);
    if (const int error = failure("close_device"); error != 0) return error;
    if (context.uses > 0) return EBUSY;
    ::close(context.async_fd);
    wire_.contexts.remove(context);
    return 0;
  }

  int query_device(ibv_context* base, ibv_device_attr* attributes) override {
    const base::Locked lock(wire_.mutex);
    if (const int error = failure("query_device"); error != 0) return error;
    const FakeDevice& device = device_of(base);
    *attributes = {};
    fmt::format_to_n(attributes->fw_ver, sizeof attributes->fw_ver - 1, "fake");
    attributes->node_guid = attributes->sys_image_guid = htobe64(device.node_guid);
    attributes->max_mr_size = ~std::uint64_t{0};
    attributes->page_size_cap = 0xfffff000;
    attributes->max_qp = device.max_qp;
    attributes->max_qp_wr = device.max_qp_wr;
    attributes->max_sge = device.max_sge;
    attributes->max_cq = attributes->max_pd = device.max_qp;
    attributes->max_cqe = device.max_cqe;
    attributes->max_mr = device.max_mr;
    attributes->max_qp_rd_atom = attributes->max_qp_init_rd_atom = most_reads;
    attributes->max_pkeys = 1;
    attributes->phys_port_cnt = static_cast<std::uint8_t>(device.ports.size());
    return 0;
  }
  int query_port(ibv_context* base, unsigned number, ibv_port_attr* attributes) override {
    const base::Locked lock(wire_.mutex);
    if (const int error = failure("query_port"); error != 0) return error;
    if (number == 0 || number > device_of(base).ports.size()) return EINVAL;
    const FakePort& port = port_of(base, number).port;
    *attributes = {};
    attributes->state = port.state;
    attributes->max_mtu = IBV_MTU_4096;
    attributes->active_mtu = port.active_mtu;
    attributes->gid_tbl_len = static_cast<int>(port.gids.size());
    attributes->max_msg_sz = port.max_message_bytes;
    attributes->pkey_tbl_len = 1;
    attributes->lid = port.lid;
    attributes->active_width = 2;
    attributes->active_speed = 32;
    attributes->link_layer = port.link_layer;
    return 0;
  }
  int query_gid(ibv_context* base, unsigned number, unsigned index, ibv_gid_entry* entry) override {
    const base::Locked lock(wire_.mutex);
    if (const int error = failure("query_gid"); error != 0) return error;
    if (number == 0 || number > device_of(base).ports.size()) return EINVAL;
    const FakePort& port = port_of(base, number).port;
    if (index >= port.gids.size()) return EINVAL;
    const FakeGid& gid = port.gids[index];
    if (!gid.readable) return ENODATA;
    *entry = {};
    std::ranges::copy(gid.raw, entry->gid.raw);
    entry->gid_index = index;
    entry->port_num = number;
    entry->gid_type = gid.type;
    entry->ndev_ifindex = gid.interface;
    return 0;
  }

  int get_async_event(ibv_context* base, ibv_async_event* event) override {
    if (!read_event(base->async_fd)) return -1;
    const base::Locked lock(wire_.mutex);
    FakeContext& context = own(wire_.contexts, base);
    *event = context.events.front();
    context.events.pop_front();
    if (is_of_queue_pair(event->event_type))
      ++wire_.queue_pairs.at(event->element.qp).unacknowledged;
    return 0;
  }
  void ack_async_event(ibv_async_event* event) override {
    const base::Locked lock(wire_.mutex);
    if (is_of_queue_pair(event->event_type) &&
        --wire_.queue_pairs.at(event->element.qp).unacknowledged < 0)
      die("an event of a queue pair is acknowledged twice");
  }

  ibv_pd* alloc_pd(ibv_context* base) override {
    const base::Locked lock(wire_.mutex);
    FakeContext& context = own(wire_.contexts, base);
    if (failure("alloc_pd") != 0) return nullptr;
    FakePd& pd = wire_.domains.add();
    pd.context = base;
    ++context.uses;
    return &pd;
  }
  int dealloc_pd(ibv_pd* base) override {
    const base::Locked lock(wire_.mutex);
    FakePd& pd = own(wire_.domains, base);
    if (const int error = failure("dealloc_pd"); error != 0) return error;
    if (pd.uses > 0) return EBUSY;
    --wire_.contexts.at(pd.context).uses;
    wire_.domains.remove(pd);
    return 0;
  }

  ibv_mr* reg_mr(ibv_pd* base, void* data, std::size_t bytes, int access) override {
    const base::Locked lock(wire_.mutex);
    FakePd& pd = own(wire_.domains, base);
    if (failure("reg_mr") != 0) return nullptr;
    return add_region(pd, data, bytes, access);
  }
  int dereg_mr(ibv_mr* base) override {
    const base::Locked lock(wire_.mutex);
    FakeMr& mr = own(wire_.regions, base);
    if (const int error = failure("dereg_mr"); error != 0) return error;
    wire_.by_key.erase(mr.lkey);
    wire_.by_key.erase(mr.rkey);
    --wire_.domains.at(mr.pd).uses;
    --wire_.host(host_).counts.registrations;
    wire_.regions.remove(mr);
    return 0;
  }

  ibv_comp_channel* create_comp_channel(ibv_context* base) override {
    const base::Locked lock(wire_.mutex);
    FakeContext& context = own(wire_.contexts, base);
    if (failure("create_comp_channel") != 0) return nullptr;
    FakeChannel& channel = wire_.channels.add();
    channel.context = base;
    channel.fd = open_events();
    ++context.uses;
    return &channel;
  }
  int destroy_comp_channel(ibv_comp_channel* base) override {
    const base::Locked lock(wire_.mutex);
    FakeChannel& channel = own(wire_.channels, base);
    if (const int error = failure("destroy_comp_channel"); error != 0) return error;
    if (channel.uses > 0) return EBUSY;
    ::close(channel.fd);
    --wire_.contexts.at(channel.context).uses;
    wire_.channels.remove(channel);
    return 0;
  }

  ibv_cq* create_cq(ibv_context* base, int entries, ibv_comp_channel* channel) override {
    const base::Locked lock(wire_.mutex);
    FakeContext& context = own(wire_.contexts, base);
    if (failure("create_cq") != 0) return nullptr;
    if (entries < 1 || entries > device_of(base).max_cqe) return refuse(EINVAL);
    if (channel != nullptr) {
      FakeChannel& used = own(wire_.channels, channel);
      if (used.context != base) return refuse(EINVAL);
      ++used.uses;
    }
    FakeCq& cq = wire_.completion_queues.add();
    cq.context = base;
    cq.channel = channel;
    cq.cqe = entries;
    ++context.uses;
    return &cq;
  }
  int destroy_cq(ibv_cq* base) override {
    const base::Locked lock(wire_.mutex);
    FakeCq& cq = own(wire_.completion_queues, base);
    if (const int error = failure("destroy_cq"); error != 0) return error;
    if (cq.uses > 0) return EBUSY;
    if (cq.unacknowledged > 0) die("destroy_cq would wait for ever for ack_cq_events");
    if (cq.channel != nullptr) {
      FakeChannel& channel = wire_.channels.at(cq.channel);
      for (auto left = std::erase(channel.events, &cq); left > 0; --left) drop_event(channel.fd);
      --channel.uses;
    }
    --wire_.contexts.at(cq.context).uses;
    wire_.drop(cq);
    return 0;
  }
  int req_notify_cq(ibv_cq* base) override {
    const base::Locked lock(wire_.mutex);
    FakeCq& cq = own(wire_.completion_queues, base);
    if (const int error = failure("req_notify_cq"); error != 0) return error;
    if (cq.channel == nullptr) return EINVAL;
    cq.armed = true;
    wire_.move();
    return 0;
  }
  int get_cq_event(ibv_comp_channel* base, ibv_cq** cq) override {
    if (!read_event(base->fd)) return -1;
    const base::Locked lock(wire_.mutex);
    FakeChannel& channel = own(wire_.channels, base);
    ++channel.events.front()->unacknowledged;
    *cq = channel.events.front();
    channel.events.pop_front();
    return 0;
  }
  void ack_cq_events(ibv_cq* base, unsigned count) override {
    const base::Locked lock(wire_.mutex);
    FakeCq& cq = own(wire_.completion_queues, base);
    if ((cq.unacknowledged -= count) < 0) die("more events are acknowledged than there were");
  }
  int poll_cq(ibv_cq* base, int most, ibv_wc* completions) override {
    const base::Locked lock(wire_.mutex);
    FakeCq& cq = own(wire_.completion_queues, base);
    if (failure("poll_cq") != 0) return -1;
    wire_.tick();
    int count = 0;
    for (; count < most && !cq.visible.empty(); ++count) {
      completions[count] = cq.visible.front().wc;
      wire_.take(cq.visible.front());
      cq.visible.pop_front();
    }
    return count;
  }

  ibv_qp* create_qp(ibv_pd* base, ibv_qp_init_attr* wanted) override {
    const base::Locked lock(wire_.mutex);
    FakePd& pd = own(wire_.domains, base);
    if (failure("create_qp") != 0) return nullptr;
    const FakeDevice& device = device_of(pd.context);
    if (wanted->qp_type != IBV_QPT_RC || wanted->srq != nullptr || wanted->send_cq == nullptr ||
        wanted->recv_cq == nullptr)
      return refuse(EINVAL);
    FakeCq& send_cq = own(wire_.completion_queues, wanted->send_cq);
    FakeCq& recv_cq = own(wire_.completion_queues, wanted->recv_cq);
    ibv_qp_cap& cap = wanted->cap;
    const auto most_requests = static_cast<unsigned>(device.max_qp_wr);
    const auto most_parts = static_cast<unsigned>(device.max_sge);
    if (send_cq.context != pd.context || recv_cq.context != pd.context ||
        cap.max_send_wr > most_requests || cap.max_recv_wr > most_requests ||
        cap.max_send_sge > most_parts || cap.max_recv_sge > most_parts ||
        cap.max_inline_data > device.max_inline)
      return refuse(EINVAL);
    HostState& host = wire_.host(host_);
    const auto same_device = [&](const auto& one) { return one.second->context == pd.context; };
    if (std::ranges::count_if(wire_.queue_pairs.all(), same_device) >= device.max_qp)
      return refuse(ENOMEM);
    cap.max_inline_data = std::min(
        device.max_inline, (cap.max_inline_data + inline_step - 1) / inline_step * inline_step);
    FakeQp& qp = wire_.queue_pairs.add();
    qp.context = pd.context;
    qp.qp_context = wanted->qp_context;
    qp.pd = base;
    qp.send_cq = wanted->send_cq;
    qp.recv_cq = wanted->recv_cq;
    qp.qp_num = wire_.next_number();
    qp.qp_type = wanted->qp_type;
    qp.host = host_;
    qp.cap = cap;
    qp.all_signalled = wanted->sq_sig_all != 0;
    wire_.by_number[qp.qp_num] = &qp;
    ++pd.uses;
    ++send_cq.uses;
    ++recv_cq.uses;
    ++host.counts.queue_pairs;
    ++host.counts.queue_pairs_made;
    return &qp;
  }
  int destroy_qp(ibv_qp* base) override {
    const base::Locked lock(wire_.mutex);
    FakeQp& qp = own(wire_.queue_pairs, base);
    if (const int error = failure("destroy_qp"); error != 0) return error;
    if (qp.unacknowledged > 0) die("destroy_qp would wait for ever for ack_async_event");
    FakeContext& context = wire_.contexts.at(qp.context);
    for (auto left = std::erase_if(context.events,
                                   [&](const ibv_async_event& one) {
                                     return is_of_queue_pair(one.event_type) &&
                                            one.element.qp == &qp;
                                   });
         left > 0; --left)
      drop_event(context.async_fd);
    wire_.forget(qp, !wire_.faults.stale_completions);
    wire_.by_number.erase(qp.qp_num);
    --wire_.domains.at(qp.pd).uses;
    --wire_.completion_queues.at(qp.send_cq).uses;
    --wire_.completion_queues.at(qp.recv_cq).uses;
    --wire_.host(host_).counts.queue_pairs;
    wire_.queue_pairs.remove(qp);
    return 0;
  }

  int modify_qp(ibv_qp* base, ibv_qp_attr* wanted, int mask) override {
    const base::Locked lock(wire_.mutex);
    FakeQp& qp = own(wire_.queue_pairs, base);
    if (const int error = failure("modify_qp"); error != 0) return error;
    if (!is_allowed_change(qp.current, wanted->qp_state, mask)) return EINVAL;
    ibv_qp_attr& attributes = qp.attributes;
    if ((mask & IBV_QP_PORT) != 0) {
      if (wanted->port_num == 0 || wanted->port_num > device_of(qp.context).ports.size())
        return EINVAL;
      qp.port = &port_of(qp.context, wanted->port_num);
    }
    if ((mask & IBV_QP_PKEY_INDEX) != 0 && wanted->pkey_index != 0) return EINVAL;
    if (qp.port != nullptr && !are_valid(*wanted, *qp.port)) return EINVAL;
    if ((mask & IBV_QP_ACCESS_FLAGS) != 0) attributes.qp_access_flags = wanted->qp_access_flags;
    switch (wanted->qp_state) {
      case IBV_QPS_RTR:
        attributes.path_mtu = wanted->path_mtu;
        attributes.dest_qp_num = wanted->dest_qp_num;
        attributes.rq_psn = wanted->rq_psn;
        attributes.ah_attr = wanted->ah_attr;
        break;
      case IBV_QPS_RTS:
        attributes.sq_psn = wanted->sq_psn;
        attributes.retry_cnt = wanted->retry_cnt;
        attributes.rnr_retry = wanted->rnr_retry;
        break;
      case IBV_QPS_ERR:
        wire_.enter_error(qp);
        break;
      case IBV_QPS_RESET:
        wire_.forget(qp, true);
        qp.sends_freed = qp.sends_posted;
        qp.receives_freed = qp.receives_posted;
        attributes = {};
        qp.port = nullptr;
        qp.established = false;
        break;
      default:
        break;
    }
    qp.current = qp.state = wanted->qp_state;
    wire_.move();
    return 0;
  }

  int post_send(ibv_qp* base, ibv_send_wr* request, ibv_send_wr** bad) override {
    const base::Locked lock(wire_.mutex);
    FakeQp& qp = own(wire_.queue_pairs, base);
    ++wire_.host(host_).counts.send_posts;
    int error = failure("post_send");
    for (; error == 0 && request != nullptr; request = error == 0 ? request->next : request)
      error = send(qp, *request);
    if (error != 0) *bad = request;
    wire_.move();
    return error;
  }
  int post_recv(ibv_qp* base, ibv_recv_wr* request, ibv_recv_wr** bad) override {
    const base::Locked lock(wire_.mutex);
    FakeQp& qp = own(wire_.queue_pairs, base);
    ++wire_.host(host_).counts.receive_posts;
    int error = failure("post_recv");
    for (; error == 0 && request != nullptr; request = error == 0 ? request->next : request)
      error = receive(qp, *request);
    if (error != 0) *bad = request;
    wire_.move();
    return error;
  }

 private:
  static std::nullptr_t refuse(int error) {
    errno = error;
    return nullptr;
  }
  // Returns the error that the test wants of this call, in errno too; 0: none.
  int failure(std::string_view verb) RONDO_REQUIRES(wire_.mutex) {
    for (FakeFabric::Wire::Failure& one : wire_.failures) {
      if (one.verb != verb || (one.host >= 0 && one.host != host_) || one.times == 0) continue;
      if (one.skip-- > 0) continue;
      one.skip = 0;
      if (one.times > 0) --one.times;
      return errno = one.error;
    }
    return 0;
  }
  // The object behind a pointer; it must be alive and of this host.
  template <class Fake, class Base>
  Fake& own(const FakeObjects<Fake, Base>& objects, Base* base) RONDO_REQUIRES(wire_.mutex) {
    Fake& fake = objects.at(base);
    if constexpr (std::is_same_v<Fake, FakeContext>) {
      if (fake.host != host_) die("an object of another host is used");
    } else {
      own(wire_.contexts, fake.context);
    }
    return fake;
  }
  const FakeDevice& device_of(ibv_context* base) RONDO_REQUIRES(wire_.mutex) {
    return wire_.host(host_).is.devices[own(wire_.contexts, base).device_index];
  }
  PortState& port_of(ibv_context* base, unsigned number) RONDO_REQUIRES(wire_.mutex) {
    return wire_.port(host_, own(wire_.contexts, base).device_index, number);
  }

  FakeMr* add_region(FakePd& pd, void* data, std::size_t bytes, int access)
      RONDO_REQUIRES(wire_.mutex) {
    const bool needs_write = (access & (IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_ATOMIC)) != 0;
    if (bytes == 0 || (needs_write && (access & IBV_ACCESS_LOCAL_WRITE) == 0))
      return refuse(EINVAL);
    const auto same_device = [&](const auto& one) { return one.second->context == pd.context; };
    if (std::ranges::count_if(wire_.regions.all(), same_device) >= device_of(pd.context).max_mr)
      return refuse(ENOMEM);
    FakeMr& mr = wire_.regions.add();
    mr.context = pd.context;
    mr.pd = &pd;
    mr.addr = data;
    mr.length = bytes;
    mr.lkey = wire_.next_number();
    mr.rkey = wire_.next_number();
    mr.access = access;
    wire_.by_key[mr.lkey] = wire_.by_key[mr.rkey] = &mr;
    ++pd.uses;
    ++wire_.host(host_).counts.registrations;
    ++wire_.host(host_).counts.registrations_made;
    return &mr;
  }

  int send(FakeQp& qp, const ibv_send_wr& wr) RONDO_REQUIRES(wire_.mutex) {
    if (qp.current != IBV_QPS_RTS && qp.current != IBV_QPS_ERR) return EINVAL;
    if (qp.sends_posted - qp.sends_freed >= qp.cap.max_send_wr) return ENOMEM;
    if (wr.opcode != IBV_WR_SEND && wr.opcode != IBV_WR_RDMA_WRITE &&
        wr.opcode != IBV_WR_RDMA_WRITE_WITH_IMM)
      return EINVAL;
    if (wr.num_sge < 0 || static_cast<unsigned>(wr.num_sge) > qp.cap.max_send_sge) return EINVAL;
    FakeRequest request;
    request.wr = wr;
    request.parts.assign(wr.sg_list, wr.sg_list + wr.num_sge);
    for (const ibv_sge& part : request.parts) request.bytes += part.length;
    request.signalled = qp.all_signalled || (wr.send_flags & IBV_SEND_SIGNALED) != 0;
    if ((wr.send_flags & IBV_SEND_INLINE) != 0) {
      if (request.bytes > qp.cap.max_inline_data) return EINVAL;
      auto& copy = request.inlined.emplace();
      for (const ibv_sge& part : request.parts) {
        const auto* const begin = reinterpret_cast<const std::byte*>(part.addr);
        copy.insert(copy.end(), begin, begin + part.length);
      }
    }
    wire_.post(qp, std::move(request));
    return 0;
  }
  int receive(FakeQp& qp, const ibv_recv_wr& wr) RONDO_REQUIRES(wire_.mutex) {
    if (qp.current == IBV_QPS_RESET) return EINVAL;
    if (qp.receives_posted - qp.receives_freed >= qp.cap.max_recv_wr) return ENOMEM;
    if (wr.num_sge < 0 || static_cast<unsigned>(wr.num_sge) > qp.cap.max_recv_sge) return EINVAL;
    FakeReceive made;
    made.id = wr.wr_id;
    made.parts.assign(wr.sg_list, wr.sg_list + wr.num_sge);
    for (const ibv_sge& part : made.parts) made.bytes += part.length;
    wire_.post(qp, std::move(made));
    return 0;
  }

  const std::shared_ptr<FakeFabric::Wire> owner_;
  FakeFabric::Wire& wire_;
  const int host_;
};

}  // namespace

std::shared_ptr<rdma::Verbs> FakeFabric::verbs(int host) {
  const base::Locked lock(wire_->mutex);
  wire_->host(host);
  return std::make_shared<FakeVerbs>(wire_, host);
}

}  // namespace rondo::testing
