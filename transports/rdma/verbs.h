// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <infiniband/verbs.h>

#include <cstddef>
#include <memory>
#include <string>

namespace rondo::rdma {

// The verbs that this transport uses, with the meaning and the results of the functions of
// libibverbs: null, an errno value or -1 with errno, as their manual pages say. The library is
// looked up at run time (load_verbs), and tests give a fabric of their own.
//
// Thread-safe as libibverbs is: different threads may use different objects, and a completion
// queue, a queue pair and its context at once.
class Verbs {
 public:
  virtual ~Verbs() = default;

  // Before the first registration: a child of fork() then keeps its own pages. An errno value.
  virtual int fork_init() = 0;
  virtual ibv_device** get_device_list(int* count) = 0;
  virtual void free_device_list(ibv_device** list) = 0;
  virtual const char* device_name(ibv_device* device) = 0;
  virtual ibv_context* open_device(ibv_device* device) = 0;
  virtual int close_device(ibv_context* context) = 0;
  virtual int query_device(ibv_context* context, ibv_device_attr* attributes) = 0;
  virtual int query_port(ibv_context* context, unsigned port, ibv_port_attr* attributes) = 0;
  virtual int query_gid(ibv_context* context, unsigned port, unsigned index,
                        ibv_gid_entry* entry) = 0;

  // An event of the device or a port. Reads context->async_fd; 0 or -1 with errno.
  virtual int get_async_event(ibv_context* context, ibv_async_event* event) = 0;
  virtual void ack_async_event(ibv_async_event* event) = 0;

  virtual ibv_pd* alloc_pd(ibv_context* context) = 0;
  virtual int dealloc_pd(ibv_pd* pd) = 0;
  virtual ibv_mr* reg_mr(ibv_pd* pd, void* data, std::size_t bytes, int access) = 0;
  virtual int dereg_mr(ibv_mr* mr) = 0;

  virtual ibv_comp_channel* create_comp_channel(ibv_context* context) = 0;
  virtual int destroy_comp_channel(ibv_comp_channel* channel) = 0;
  virtual ibv_cq* create_cq(ibv_context* context, int entries, ibv_comp_channel* channel) = 0;
  virtual int destroy_cq(ibv_cq* cq) = 0;
  virtual int req_notify_cq(ibv_cq* cq) = 0;
  // Reads channel->fd; 0 or -1 with errno.
  virtual int get_cq_event(ibv_comp_channel* channel, ibv_cq** cq) = 0;
  virtual void ack_cq_events(ibv_cq* cq, unsigned count) = 0;
  virtual int poll_cq(ibv_cq* cq, int most, ibv_wc* completions) = 0;

  virtual ibv_qp* create_qp(ibv_pd* pd, ibv_qp_init_attr* attributes) = 0;
  virtual int modify_qp(ibv_qp* qp, ibv_qp_attr* attributes, int mask) = 0;
  virtual int destroy_qp(ibv_qp* qp) = 0;
  virtual int post_send(ibv_qp* qp, ibv_send_wr* request, ibv_send_wr** bad) = 0;
  virtual int post_recv(ibv_qp* qp, ibv_recv_wr* request, ibv_recv_wr** bad) = 0;
};

// The result of load_verbs: the verbs, or why there are none, with the remedy.
struct LoadedVerbs {
  std::shared_ptr<Verbs> verbs;
  std::string obstacle;
};
// Looks up libibverbs.so.1. Thread-safe. The library stays loaded for as long as the verbs live.
LoadedVerbs load_verbs();

}  // namespace rondo::rdma
