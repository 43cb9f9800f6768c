// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <utility>
#include <vector>

#include "transports/rdma/verbs.h"

namespace rondo::testing {

// Passes calls to the verbs of a real device, and injects faults. Thread-bound.
class FaultyVerbs final : public rdma::Verbs {
 public:
  explicit FaultyVerbs(std::shared_ptr<rdma::Verbs> inner) : inner_(std::move(inner)) {}

  // Changes each request before the device gets it.
  std::function<void(ibv_send_wr&)> on_send;
  // If true, receives are not posted.
  bool drops_receives = false;
  // Those that are alive, in the order in which they were made.
  const std::vector<ibv_qp*>& queue_pairs() const noexcept { return queue_pairs_; }

  int fork_init() override { return inner_->fork_init(); }
  ibv_device** get_device_list(int* count) override { return inner_->get_device_list(count); }
  void free_device_list(ibv_device** list) override { inner_->free_device_list(list); }
  const char* device_name(ibv_device* device) override { return inner_->device_name(device); }
  ibv_context* open_device(ibv_device* device) override { return inner_->open_device(device); }
  int close_device(ibv_context* context) override { return inner_->close_device(context); }
  int query_device(ibv_context* context, ibv_device_attr* attributes) override {
    return inner_->query_device(context, attributes);
  }
  int query_port(ibv_context* context, unsigned port, ibv_port_attr* attributes) override {
    return inner_->query_port(context, port, attributes);
  }
  int query_gid(ibv_context* context, unsigned port, unsigned index,
                ibv_gid_entry* entry) override {
    return inner_->query_gid(context, port, index, entry);
  }
  int get_async_event(ibv_context* context, ibv_async_event* event) override {
    return inner_->get_async_event(context, event);
  }
  void ack_async_event(ibv_async_event* event) override { inner_->ack_async_event(event); }
  ibv_pd* alloc_pd(ibv_context* context) override { return inner_->alloc_pd(context); }
  int dealloc_pd(ibv_pd* pd) override { return inner_->dealloc_pd(pd); }
  ibv_mr* reg_mr(ibv_pd* pd, void* data, std::size_t bytes, int access) override {
    return inner_->reg_mr(pd, data, bytes, access);
  }
  int dereg_mr(ibv_mr* mr) override { return inner_->dereg_mr(mr); }
  ibv_comp_channel* create_comp_channel(ibv_context* context) override {
    return inner_->create_comp_channel(context);
  }
  int destroy_comp_channel(ibv_comp_channel* channel) override {
    return inner_->destroy_comp_channel(channel);
  }
  ibv_cq* create_cq(ibv_context* context, int entries, ibv_comp_channel* channel) override {
    return inner_->create_cq(context, entries, channel);
  }
  int destroy_cq(ibv_cq* cq) override { return inner_->destroy_cq(cq); }
  int req_notify_cq(ibv_cq* cq) override { return inner_->req_notify_cq(cq); }
  int get_cq_event(ibv_comp_channel* channel, ibv_cq** cq) override {
    return inner_->get_cq_event(channel, cq);
  }
  void ack_cq_events(ibv_cq* cq, unsigned count) override { inner_->ack_cq_events(cq, count); }
  int poll_cq(ibv_cq* cq, int most, ibv_wc* completions) override {
    return inner_->poll_cq(cq, most, completions);
  }
  ibv_qp* create_qp(ibv_pd* pd, ibv_qp_init_attr* attributes) override {
    ibv_qp* const made = inner_->create_qp(pd, attributes);
    if (made != nullptr) queue_pairs_.push_back(made);
    return made;
  }
  int modify_qp(ibv_qp* qp, ibv_qp_attr* attributes, int mask) override {
    return inner_->modify_qp(qp, attributes, mask);
  }
  int destroy_qp(ibv_qp* qp) override {
    std::erase(queue_pairs_, qp);
    return inner_->destroy_qp(qp);
  }
  int post_send(ibv_qp* qp, ibv_send_wr* request, ibv_send_wr** bad) override {
    if (on_send) on_send(*request);
    return inner_->post_send(qp, request, bad);
  }
  int post_recv(ibv_qp* qp, ibv_recv_wr* request, ibv_recv_wr** bad) override {
    return drops_receives ? 0 : inner_->post_recv(qp, request, bad);
  }

 private:
  const std::shared_ptr<rdma::Verbs> inner_;
  std::vector<ibv_qp*> queue_pairs_;
};

}  // namespace rondo::testing
