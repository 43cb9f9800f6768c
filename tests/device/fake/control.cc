// SPDX-License-Identifier: Apache-2.0
#include "control.h"

#include <cstring>

#include "call.h"
#include "executor.h"
#include "handles.h"
#include "modules.h"
#include "settings.h"

namespace {

using namespace fake;

void* reach(const char* function, Address address, std::size_t bytes) {
  const Quiet quiet;
  void* const found = memory().storage_of(address, bytes);
  if (found == nullptr)
    stop_test(std::string(function) + " of " + std::to_string(bytes) + " bytes at " +
              memory().describe(address));
  return found;
}

// The default streams are those of the current context.
StreamHandle stream_to_control(void* handle) {
  const StreamHandle stream = stream_of(static_cast<StreamHandle>(handle), current_context());
  if (stream == nullptr) stop_test("there is no such stream");
  return stream;
}

StreamHandle one_or_all(void* handle) {
  return handle == nullptr ? nullptr : stream_to_control(handle);
}

}  // namespace

FAKE_EXPORT void rondo_fake_write(Address to, const void* from, std::size_t bytes) {
  std::memcpy(reach("a write", to, bytes), from, bytes);
}

FAKE_EXPORT void rondo_fake_read(void* to, Address from, std::size_t bytes) {
  std::memcpy(to, reach("a read", from, bytes), bytes);
}

FAKE_EXPORT void* rondo_fake_storage(Address address, std::size_t bytes) {
  return reach("an access", address, bytes);
}

FAKE_EXPORT void rondo_fake_register_kernel(const char* name, RondoFakeKernel* run,
                                            unsigned parameters,
                                            const std::size_t* parameter_bytes) {
  const Quiet quiet;
  register_kernel(name, run, {parameter_bytes, parameter_bytes + parameters});
}

FAKE_EXPORT void rondo_fake_fail(const char* function, unsigned nth, int times, int status) {
  const Quiet quiet;
  fail_calls(function, nth, times, status);
}

FAKE_EXPORT void rondo_fake_stall(const char* function, int on) {
  const Quiet quiet;
  stall_calls(function, on != 0);
}

FAKE_EXPORT void rondo_fake_fail_work(unsigned nth, int status) {
  const Quiet quiet;
  executor().fail_work(nth, status);
}

FAKE_EXPORT void rondo_fake_break(int ordinal, int status) {
  const Quiet quiet;
  const ContextHandle context = context_of(ordinal);
  if (context == nullptr) stop_test("there is no GPU " + std::to_string(ordinal));
  executor().break_context(context, status);
}

FAKE_EXPORT void rondo_fake_allow(const char* what, int on) {
  const Quiet quiet;
  settings().permission(what).store(on != 0);
}

FAKE_EXPORT void rondo_fake_clear() {
  const Quiet quiet;
  forget_failures();
  executor().clear();
  for (const char* const what : {"peers", "export", "ipc", "vmm"})
    settings().permission(what).store(true);
}

FAKE_EXPORT void rondo_fake_hold(void* stream) {
  const Quiet quiet;
  executor().hold(one_or_all(stream));
}

FAKE_EXPORT void rondo_fake_let_go(void* stream) {
  const Quiet quiet;
  executor().let_go(one_or_all(stream));
}

FAKE_EXPORT void rondo_fake_settle() {
  const Quiet quiet;
  executor().settle();
}

FAKE_EXPORT void rondo_fake_capture(void* stream, int on) {
  const Quiet quiet;
  executor().capture(stream_to_control(stream), on != 0);
}

FAKE_EXPORT void rondo_fake_forbid_blocking(int on) {
  const Quiet quiet;
  forbid_blocking(on != 0);
}

FAKE_EXPORT unsigned long rondo_fake_blocking_calls() {
  return blocking_calls();
}

FAKE_EXPORT int rondo_fake_is_inside() {
  return quiet_depth > 0 ? 1 : 0;
}

FAKE_EXPORT unsigned long rondo_fake_calls(const char* function) {
  const Quiet quiet;
  return calls_of(function);
}

FAKE_EXPORT long rondo_fake_alive(int kind) {
  const Quiet quiet;
  return handles_alive(static_cast<RondoFakeKind>(kind));
}
