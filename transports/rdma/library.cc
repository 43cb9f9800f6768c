// SPDX-License-Identifier: Apache-2.0
//
// libibverbs, looked up at run time: a binary of Rondo runs on machines without it.
#include <dlfcn.h>
#include <fmt/format.h>

#include <memory>
#include <utility>

#include "transports/rdma/verbs.h"

// The header wraps some functions in macros; here their names are needed.
#undef ibv_query_port
#undef ibv_reg_mr

namespace rondo::rdma {
namespace {

constexpr const char* library_name = "libibverbs.so.1";

struct CloseLibrary {
  void operator()(void* handle) const noexcept { ::dlclose(handle); }
};
using Library = std::unique_ptr<void, CloseLibrary>;

// The functions that the header does not define itself. The others are calls through the context.
struct Functions {
  int (*fork_init)();
  ibv_device** (*get_device_list)(int*);
  void (*free_device_list)(ibv_device**);
  const char* (*get_device_name)(ibv_device*);
  ibv_context* (*open_device)(ibv_device*);
  int (*close_device)(ibv_context*);
  int (*query_device)(ibv_context*, ibv_device_attr*);
  int (*query_port)(ibv_context*, std::uint8_t, ibv_port_attr*);
  int (*query_gid_ex)(ibv_context*, std::uint32_t, std::uint32_t, ibv_gid_entry*, std::uint32_t,
                      std::size_t);
  int (*get_async_event)(ibv_context*, ibv_async_event*);
  void (*ack_async_event)(ibv_async_event*);
  ibv_pd* (*alloc_pd)(ibv_context*);
  int (*dealloc_pd)(ibv_pd*);
  ibv_mr* (*reg_mr)(ibv_pd*, void*, std::size_t, int);
  int (*dereg_mr)(ibv_mr*);
  ibv_comp_channel* (*create_comp_channel)(ibv_context*);
  int (*destroy_comp_channel)(ibv_comp_channel*);
  ibv_cq* (*create_cq)(ibv_context*, int, void*, ibv_comp_channel*, int);
  int (*destroy_cq)(ibv_cq*);
  int (*get_cq_event)(ibv_comp_channel*, ibv_cq**, void**);
  void (*ack_cq_events)(ibv_cq*, unsigned);
  ibv_qp* (*create_qp)(ibv_pd*, ibv_qp_init_attr*);
  int (*modify_qp)(ibv_qp*, ibv_qp_attr*, int);
  int (*destroy_qp)(ibv_qp*);
};

// Looks functions up and remembers the first that is missing.
class Lookup {
 public:
  explicit Lookup(void* library) noexcept : library_(library) {}
  template <class Function>
  void find(Function& function, const char* name) noexcept {
    function = reinterpret_cast<Function>(::dlsym(library_, name));
    if (function == nullptr && missing_ == nullptr) missing_ = name;
  }
  const char* missing() const noexcept { return missing_; }

 private:
  void* library_;
  const char* missing_ = nullptr;
};

// Returns the name of a function that is missing, or null.
const char* look_up(void* library, Functions& functions) noexcept {
  Lookup lookup(library);
  lookup.find(functions.fork_init, "ibv_fork_init");
  lookup.find(functions.get_device_list, "ibv_get_device_list");
  lookup.find(functions.free_device_list, "ibv_free_device_list");
  lookup.find(functions.get_device_name, "ibv_get_device_name");
  lookup.find(functions.open_device, "ibv_open_device");
  lookup.find(functions.close_device, "ibv_close_device");
  lookup.find(functions.query_device, "ibv_query_device");
  lookup.find(functions.query_port, "ibv_query_port");
  lookup.find(functions.query_gid_ex, "_ibv_query_gid_ex");
  lookup.find(functions.get_async_event, "ibv_get_async_event");
  lookup.find(functions.ack_async_event, "ibv_ack_async_event");
  lookup.find(functions.alloc_pd, "ibv_alloc_pd");
  lookup.find(functions.dealloc_pd, "ibv_dealloc_pd");
  lookup.find(functions.reg_mr, "ibv_reg_mr");
  lookup.find(functions.dereg_mr, "ibv_dereg_mr");
  lookup.find(functions.create_comp_channel, "ibv_create_comp_channel");
  lookup.find(functions.destroy_comp_channel, "ibv_destroy_comp_channel");
  lookup.find(functions.create_cq, "ibv_create_cq");
  lookup.find(functions.destroy_cq, "ibv_destroy_cq");
  lookup.find(functions.get_cq_event, "ibv_get_cq_event");
  lookup.find(functions.ack_cq_events, "ibv_ack_cq_events");
  lookup.find(functions.create_qp, "ibv_create_qp");
  lookup.find(functions.modify_qp, "ibv_modify_qp");
  lookup.find(functions.destroy_qp, "ibv_destroy_qp");
  return lookup.missing();
}

class LibraryVerbs final : public Verbs {
 public:
  LibraryVerbs(Library library, const Functions& functions) noexcept
      : library_(std::move(library)), call_(functions) {}

  int fork_init() override {
    // The library takes no lock, and communicators may begin on several threads at a time.
    static const int result = call_.fork_init();
    return result;
  }
  ibv_device** get_device_list(int* count) override { return call_.get_device_list(count); }
  void free_device_list(ibv_device** list) override { call_.free_device_list(list); }
  const char* device_name(ibv_device* device) override { return call_.get_device_name(device); }
  ibv_context* open_device(ibv_device* device) override { return call_.open_device(device); }
  int close_device(ibv_context* context) override { return call_.close_device(context); }
  int query_device(ibv_context* context, ibv_device_attr* attributes) override {
    return call_.query_device(context, attributes);
  }
  int query_port(ibv_context* context, unsigned port, ibv_port_attr* attributes) override {
    // The library fills in the fields that it knows.
    *attributes = {};
    return call_.query_port(context, static_cast<std::uint8_t>(port), attributes);
  }
  int query_gid(ibv_context* context, unsigned port, unsigned index,
                ibv_gid_entry* entry) override {
    return call_.query_gid_ex(context, port, index, entry, 0, sizeof *entry);
  }
  int get_async_event(ibv_context* context, ibv_async_event* event) override {
    return call_.get_async_event(context, event);
  }
  void ack_async_event(ibv_async_event* event) override { call_.ack_async_event(event); }
  ibv_pd* alloc_pd(ibv_context* context) override { return call_.alloc_pd(context); }
  int dealloc_pd(ibv_pd* pd) override { return call_.dealloc_pd(pd); }
  ibv_mr* reg_mr(ibv_pd* pd, void* data, std::size_t bytes, int access) override {
    return call_.reg_mr(pd, data, bytes, access);
  }
  int dereg_mr(ibv_mr* mr) override { return call_.dereg_mr(mr); }
  ibv_comp_channel* create_comp_channel(ibv_context* context) override {
    return call_.create_comp_channel(context);
  }
  int destroy_comp_channel(ibv_comp_channel* channel) override {
    return call_.destroy_comp_channel(channel);
  }
  ibv_cq* create_cq(ibv_context* context, int entries, ibv_comp_channel* channel) override {
    return call_.create_cq(context, entries, nullptr, channel, 0);
  }
  int destroy_cq(ibv_cq* cq) override { return call_.destroy_cq(cq); }
  int req_notify_cq(ibv_cq* cq) override { return ibv_req_notify_cq(cq, 0); }
  int get_cq_event(ibv_comp_channel* channel, ibv_cq** cq) override {
    void* user = nullptr;
    return call_.get_cq_event(channel, cq, &user);
  }
  void ack_cq_events(ibv_cq* cq, unsigned count) override { call_.ack_cq_events(cq, count); }
  int poll_cq(ibv_cq* cq, int most, ibv_wc* completions) override {
    return ibv_poll_cq(cq, most, completions);
  }
  ibv_qp* create_qp(ibv_pd* pd, ibv_qp_init_attr* attributes) override {
    return call_.create_qp(pd, attributes);
  }
  int modify_qp(ibv_qp* qp, ibv_qp_attr* attributes, int mask) override {
    return call_.modify_qp(qp, attributes, mask);
  }
  int destroy_qp(ibv_qp* qp) override { return call_.destroy_qp(qp); }
  int post_send(ibv_qp* qp, ibv_send_wr* request, ibv_send_wr** bad) override {
    return ibv_post_send(qp, request, bad);
  }
  int post_recv(ibv_qp* qp, ibv_recv_wr* request, ibv_recv_wr** bad) override {
    return ibv_post_recv(qp, request, bad);
  }

 private:
  const Library library_;
  const Functions call_;
};

}  // namespace

LoadedVerbs load_verbs() {
  // It stays loaded: its list of devices is kept in static memory.
  Library library(::dlopen(library_name, RTLD_NOW | RTLD_LOCAL | RTLD_NODELETE));
  if (!library)
    return {nullptr, fmt::format("{} cannot be loaded; install it (Debian: libibverbs1 and "
                                 "ibverbs-providers; Fedora: libibverbs)",
                                 library_name)};
  Functions functions{};
  if (const char* const missing = look_up(library.get(), functions))
    return {nullptr, fmt::format("{} has no {}: it is older than rdma-core 32, install a newer one",
                                 library_name, missing)};
  return {std::make_shared<LibraryVerbs>(std::move(library), functions), {}};
}

}  // namespace rondo::rdma
