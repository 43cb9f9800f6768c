// SPDX-License-Identifier: Apache-2.0
#include "device/gpu.h"

#include <fmt/format.h>

#include "base/signals.h"

namespace rondo::device {

Gpu::Gpu(const CudaDriver& driver, Ordinal ordinal) : driver_(driver), ordinal_(ordinal) {
  const int count = gpu_count(driver);
  if (ordinal < 0 || ordinal >= count)
    throw Error(Errc::invalid_argument,
                fmt::format("there is no GPU {}: this process sees {} {}{}; check "
                            "CUDA_VISIBLE_DEVICES",
                            ordinal, count, count == 1 ? "GPU" : "GPUs",
                            count == 0 ? "" : fmt::format(", numbered from 0 to {}", count - 1)));
  int capture_mode = relaxed_capture;
  driver.thread_exchange_capture_mode(&capture_mode);
  const Status status = [&] {
    const base::BlockedSignals blocked;  // the driver starts threads for a context
    return driver.primary_context_retain(&context_, ordinal);
  }();
  driver.thread_exchange_capture_mode(&capture_mode);
  check(status, "cuDevicePrimaryCtxRetain");
}

Gpu::~Gpu() {
  if (here()) driver_.primary_context_release(ordinal_);
}

std::string Gpu::text(Status status, std::string_view what) const {
  return fmt::format("{} on GPU {}: {}", what, ordinal_, describe(driver_, status));
}

void Gpu::fail(Status status, std::string_view what) const {
  throw Error(Errc::system, text(status, what));
}

Current::Current(const Gpu& gpu) : gpu_(gpu) {
  if (!gpu.here())
    throw Error(Errc::system,
                fmt::format("GPU {} belongs to the parent of this forked child: CUDA "
                            "cannot be used after fork(); start a new program instead",
                            gpu.ordinal()));
  gpu.check(gpu.driver().context_push_current(gpu.context()), "cuCtxPushCurrent");
  gpu.driver().thread_exchange_capture_mode(&capture_mode_);
}

Current::~Current() {
  ContextHandle popped = nullptr;
  if (!gpu_.here()) return;
  gpu_.driver().thread_exchange_capture_mode(&capture_mode_);
  gpu_.driver().context_pop_current(&popped);
}

std::string problem_of_stream(const Gpu& gpu, StreamHandle stream) {
  constexpr Status implicit_capture = 906;  // CUDA_ERROR_STREAM_CAPTURE_IMPLICIT
  int capture = 0;
  const Current current(gpu);
  const Status status = gpu.driver().stream_is_capturing(stream, &capture);
  if (capture != 0 || status == implicit_capture)
    return fmt::format(
        "{} captured into a CUDA graph: the host paces Rondo's operations, so a graph "
        "cannot contain them; make the call outside of the capture",
        capture != 0 ? "the stream is being" : "a stream that orders the default stream is being");
  gpu.check(status, "cuStreamIsCapturing");
  return {};
}

void refuse_capture(const Gpu& gpu, StreamHandle stream, std::string_view who) {
  const std::string problem = problem_of_stream(gpu, stream);
  if (!problem.empty()) throw Error(Errc::unsupported, fmt::format("{}: {}", who, problem));
}

std::string describe(const CudaDriver& driver, Status status) {
  const char *name = nullptr, *words = nullptr;
  if (driver.get_error_name(status, &name) != success || name == nullptr)
    return fmt::format("CUDA error {}, which this driver does not know", status);
  if (driver.get_error_string(status, &words) != success || words == nullptr) return name;
  return fmt::format("{} ({})", name, words);
}

int gpu_count(const CudaDriver& driver) {
  int count = 0;
  if (const Status status = driver.device_get_count(&count); status != success)
    throw Error(Errc::system, "cuDeviceGetCount: " + describe(driver, status));
  return count;
}

}  // namespace rondo::device
