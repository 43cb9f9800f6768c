// SPDX-License-Identifier: Apache-2.0
//
// The C API: operations. Each function turns a rondo_call into a call of the communicator, and then
// waits for it or gives its Work to the caller's request.
#include <fmt/format.h>

#include <algorithm>
#include <cstddef>
#include <span>
#include <vector>

#include "collectives/operation/operation.h"
#include "lib/c/communicator.h"
#include "lib/c/status.h"
#include "lib/c/structs.h"

namespace rondo::c {

namespace {

// A value outside the enum must not become a valid one when it is cut.
template <class To, class From>
To narrow(From value, From last) noexcept {
  return static_cast<To>(static_cast<unsigned>(value) <= static_cast<unsigned>(last)
                             ? static_cast<unsigned>(value)
                             : 255u);
}

OpOptions options_of(const rondo_call& call) {
  OpOptions options;
  constexpr std::uint64_t most_ms = std::uint64_t{1} << 40;
  options.deadline =
      std::chrono::milliseconds{static_cast<std::int64_t>(std::min(call.deadline_ms, most_ms))};
  options.priority = call.urgent != 0 ? Priority::urgent : Priority::bulk;
  if (call.has_scale != 0) options.scale = call.scale;
  if (call.has_input_scale != 0) options.input_scale = call.input_scale;
  if (call.tag != nullptr) options.tag = call.tag;
  options.stream = call.stream;
  options.unattended = call.unattended != 0;
  return options;
}

int device_of(const rondo_call& call) {
  if (call.has_device == 0) return -1;
  // A negative number means host memory in C++, and so a mistake here would go unnoticed.
  if (call.device < 0)
    throw Error(Errc::invalid_argument,
                fmt::format("call.device is {}: GPUs count from 0; for host memory set "
                            "call.has_device to 0",
                            call.device));
  return call.device;
}

// A rondo_call as Rondo's own types.
struct Given {
  explicit Given(const rondo_call& call) : options(options_of(call)), device(device_of(call)) {}
  explicit Given(const rondo_call* call)
      : Given(call != nullptr ? read_struct(call, "call", set_bytes<rondo_call>("rondo_call"))
                              : rondo_call{}) {}

  // The cast is safe: operations only read inputs.
  Buffer buffer(const void* data, std::size_t count, rondo_dtype type) const {
    return {const_cast<void*>(data), count, narrow<DType>(type, RONDO_I16), device};
  }

  OpOptions options;
  int device;  // of all buffers
};

// Calls start(communicator, given). Without a request waits for the operation.
template <class Start>
rondo_status run(rondo_communicator* communicator, const rondo_call* call, rondo_request** request,
                 const Start& start) noexcept {
  return guarded([&] {
    if (request != nullptr) *request = nullptr;
    if (communicator == nullptr) throw Error(Errc::invalid_argument, "communicator is NULL");
    Work work = start(communicator->value, Given(call));
    if (request == nullptr) return work.wait();
    *request = reinterpret_cast<rondo_request*>(work.release());
  });
}

std::size_t total(std::span<const std::size_t> counts) {
  std::size_t sum = 0;
  for (const std::size_t count : counts)
    if (__builtin_add_overflow(sum, count, &sum))
      throw Error(Errc::invalid_argument,
                  "the counts add up to more elements than memory can hold");
  return sum;
}

std::span<const std::size_t> counts_of(const Communicator& communicator, const std::size_t* counts,
                                       const char* name) {
  if (counts == nullptr)
    throw Error(Errc::invalid_argument,
                fmt::format("{} is NULL: give one count for each rank", name));
  return {counts, static_cast<std::size_t>(communicator.size())};
}

// Returns size * count.
std::size_t all_blocks(const Communicator& communicator, std::size_t count) {
  std::size_t product = 0;
  if (__builtin_mul_overflow(count, static_cast<std::size_t>(communicator.size()), &product))
    throw Error(
        Errc::invalid_argument,
        fmt::format("count is {}: so many elements for each rank are more than memory can hold",
                    count));
  return product;
}

}  // namespace

}  // namespace rondo::c

using namespace rondo;
using namespace rondo::c;

extern "C" {

rondo_status rondo_all_reduce(rondo_communicator* communicator, const void* in, void* out,
                              size_t count, rondo_dtype type, rondo_op op, const rondo_call* call,
                              rondo_request** request) {
  return run(communicator, call, request, [&](Communicator& c, const Given& given) {
    return c.all_reduce(given.buffer(in, count, type), given.buffer(out, count, type),
                        narrow<ReduceOp>(op, RONDO_BIT_XOR), given.options);
  });
}

rondo_status rondo_reduce(rondo_communicator* communicator, const void* in, void* out, size_t count,
                          rondo_dtype type, rondo_op op, int root, const rondo_call* call,
                          rondo_request** request) {
  return run(communicator, call, request, [&](Communicator& c, const Given& given) {
    return c.reduce(given.buffer(in, count, type), given.buffer(out, count, type),
                    narrow<ReduceOp>(op, RONDO_BIT_XOR), root, given.options);
  });
}

rondo_status rondo_broadcast(rondo_communicator* communicator, const void* in, void* out,
                             size_t count, rondo_dtype type, int root, const rondo_call* call,
                             rondo_request** request) {
  return run(communicator, call, request, [&](Communicator& c, const Given& given) {
    return c.broadcast(given.buffer(in, count, type), given.buffer(out, count, type), root,
                       given.options);
  });
}

rondo_status rondo_all_gather(rondo_communicator* communicator, const void* in, void* out,
                              size_t count, rondo_dtype type, const rondo_call* call,
                              rondo_request** request) {
  return run(communicator, call, request, [&](Communicator& c, const Given& given) {
    return c.all_gather(given.buffer(in, count, type),
                        given.buffer(out, all_blocks(c, count), type), given.options);
  });
}

rondo_status rondo_reduce_scatter(rondo_communicator* communicator, const void* in, void* out,
                                  size_t count, rondo_dtype type, rondo_op op,
                                  const rondo_call* call, rondo_request** request) {
  return run(communicator, call, request, [&](Communicator& c, const Given& given) {
    return c.reduce_scatter(given.buffer(in, all_blocks(c, count), type),
                            given.buffer(out, count, type), narrow<ReduceOp>(op, RONDO_BIT_XOR),
                            given.options);
  });
}

rondo_status rondo_gather(rondo_communicator* communicator, const void* in, void* out, size_t count,
                          rondo_dtype type, int root, const rondo_call* call,
                          rondo_request** request) {
  return run(communicator, call, request, [&](Communicator& c, const Given& given) {
    return c.gather(given.buffer(in, count, type), given.buffer(out, all_blocks(c, count), type),
                    root, given.options);
  });
}

rondo_status rondo_scatter(rondo_communicator* communicator, const void* in, void* out,
                           size_t count, rondo_dtype type, int root, const rondo_call* call,
                           rondo_request** request) {
  return run(communicator, call, request, [&](Communicator& c, const Given& given) {
    return c.scatter(given.buffer(in, all_blocks(c, count), type), given.buffer(out, count, type),
                     root, given.options);
  });
}

rondo_status rondo_all_to_all(rondo_communicator* communicator, const void* in, void* out,
                              size_t count, rondo_dtype type, const rondo_call* call,
                              rondo_request** request) {
  return run(communicator, call, request, [&](Communicator& c, const Given& given) {
    const std::size_t all = all_blocks(c, count);
    return c.all_to_all(given.buffer(in, all, type), given.buffer(out, all, type), given.options);
  });
}

rondo_status rondo_all_gather_v(rondo_communicator* communicator, const void* in, void* out,
                                const size_t* counts, rondo_dtype type, const rondo_call* call,
                                rondo_request** request) {
  return run(communicator, call, request, [&](Communicator& c, const Given& given) {
    const auto each = counts_of(c, counts, "counts");
    return c.all_gather_v(given.buffer(in, each[static_cast<std::size_t>(c.rank())], type),
                          given.buffer(out, total(each), type), each, given.options);
  });
}

rondo_status rondo_reduce_scatter_v(rondo_communicator* communicator, const void* in, void* out,
                                    const size_t* counts, rondo_dtype type, rondo_op op,
                                    const rondo_call* call, rondo_request** request) {
  return run(communicator, call, request, [&](Communicator& c, const Given& given) {
    const auto each = counts_of(c, counts, "counts");
    return c.reduce_scatter_v(given.buffer(in, total(each), type),
                              given.buffer(out, each[static_cast<std::size_t>(c.rank())], type),
                              each, narrow<ReduceOp>(op, RONDO_BIT_XOR), given.options);
  });
}

rondo_status rondo_all_to_all_v(rondo_communicator* communicator, const void* in,
                                const size_t* send_counts, void* out, const size_t* receive_counts,
                                rondo_dtype type, const rondo_call* call, rondo_request** request) {
  return run(communicator, call, request, [&](Communicator& c, const Given& given) {
    const auto sends = counts_of(c, send_counts, "send_counts"),
               receives = counts_of(c, receive_counts, "receive_counts");
    return c.all_to_all_v(given.buffer(in, total(sends), type), sends,
                          given.buffer(out, total(receives), type), receives, given.options);
  });
}

rondo_status rondo_barrier(rondo_communicator* communicator, const rondo_call* call,
                           rondo_request** request) {
  return run(communicator, call, request,
             [&](Communicator& c, const Given& given) { return c.barrier(given.options); });
}

rondo_status rondo_send(rondo_communicator* communicator, const void* in, size_t count,
                        rondo_dtype type, int peer, uint32_t tag, const rondo_call* call,
                        rondo_request** request) {
  return run(communicator, call, request, [&](Communicator& c, const Given& given) {
    return c.send(given.buffer(in, count, type), peer, tag, given.options);
  });
}

rondo_status rondo_receive(rondo_communicator* communicator, void* out, size_t count,
                           rondo_dtype type, int peer, uint32_t tag, const rondo_call* call,
                           rondo_request** request) {
  return run(communicator, call, request, [&](Communicator& c, const Given& given) {
    return c.receive(given.buffer(out, count, type), peer, tag, given.options);
  });
}

rondo_status rondo_receive_any(rondo_communicator* communicator, void* out, size_t count,
                               rondo_dtype type, uint32_t tag, const rondo_call* call,
                               rondo_request** request) {
  return run(communicator, call, request, [&](Communicator& c, const Given& given) {
    return c.receive_any(given.buffer(out, count, type), tag, given.options);
  });
}

rondo_status rondo_batch(rondo_communicator* communicator, const rondo_transfer* transfers,
                         size_t transfer_count, const rondo_call* call, rondo_request** request) {
  return run(communicator, call, request, [&](Communicator& c, const Given& given) {
    if (transfers == nullptr && transfer_count != 0)
      throw Error(Errc::invalid_argument, "transfers is NULL");
    std::vector<Transfer> all;
    all.reserve(transfer_count);
    for (const rondo_transfer& t : std::span(transfers, transfer_count))
      all.push_back({t.receive != 0 ? Transfer::Kind::receive : Transfer::Kind::send,
                     given.buffer(t.data, t.count, t.type), t.peer, t.tag});
    return c.batch(all, given.options);
  });
}
}
