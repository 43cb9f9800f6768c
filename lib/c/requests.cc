// SPDX-License-Identifier: Apache-2.0
//
// The C API: requests. A request is the operation itself, and each handle is one reference to it:
// nothing is allocated for it.
#include <rondo/work.h>

#include <algorithm>
#include <chrono>
#include <cstdint>

#include "collectives/operation/operation.h"
#include "lib/c/status.h"

namespace rondo::c {
namespace {

operation::Operation* operation_of(rondo_request* request) noexcept {
  return reinterpret_cast<operation::Operation*>(request);
}

// A handle beside that of the caller, who keeps his.
Work share(rondo_request* request) noexcept {
  rondo_retain(request);
  return Work(operation_of(request));
}

rondo_status look(const Work& work, std::uint64_t timeout_ms, int* done) noexcept {
  return guarded([&] {
    require(done, "done");
    *done = 1;  // a failure ends it, too
    constexpr std::uint64_t most_ms = std::uint64_t{1} << 40;
    const auto time = static_cast<std::int64_t>(std::min(timeout_ms, most_ms));
    if (!work.wait_for(std::chrono::milliseconds{time})) *done = 0;
  });
}

}  // namespace
}  // namespace rondo::c

using namespace rondo;
using namespace rondo::c;

extern "C" {

rondo_status rondo_wait(rondo_request* request) {
  return guarded([&] { Work(operation_of(request)).wait(); });
}

rondo_status rondo_test(rondo_request* request, uint64_t timeout_ms, int* done) {
  Work work(operation_of(request));
  const rondo_status status = look(work, timeout_ms, done);
  if (done == nullptr || *done == 0) work.release();
  return status;
}

rondo_status rondo_poll(rondo_request* request, uint64_t timeout_ms, int* done) {
  return look(share(request), timeout_ms, done);
}

rondo_status rondo_join(rondo_request* request, void* stream) {
  return guarded([&] { share(request).join(stream); });
}

void rondo_release(rondo_request* request) {
  const Work last(operation_of(request));
}

void rondo_retain(rondo_request* request) {
  if (request != nullptr) operation_of(request)->add_reference();
}

int rondo_source(rondo_request* request) {
  return share(request).source();
}

rondo_status rondo_request_message(rondo_request* request, char* text, size_t capacity) {
  return guarded([&] { write_text(share(request).message(), text, capacity); });
}

rondo_status rondo_on_done(rondo_request* request,
                           void (*function)(void* context, rondo_status status), void* context) {
  return guarded([&] {
    require(function, "function");
    share(request).on_done([function, context](std::error_code code) {
      function(context, code ? status_of(code) : RONDO_OK);
    });
  });
}
}
