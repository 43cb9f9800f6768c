// SPDX-License-Identifier: Apache-2.0
//
// GPUs for torch over the fake CUDA driver: tensors in the memory of GPUs, streams and events.
// torch's own kernels and allocator do not run on it, so this gives what the backend uses of them:
// new tensors, and copies on the current stream. It replaces torch's device guard for CUDA too,
// which the backend and torch's futures ask for streams and events.
#include <ATen/ATen.h>
#include <ATen/SparseTensorImpl.h>
#include <c10/core/Event.h>
#include <c10/core/InferenceMode.h>
#include <c10/core/impl/DeviceGuardImplInterface.h>
#include <torch/csrc/utils/pybind.h>
#include <torch/library.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <cstdint>
#include <deque>
#include <map>
#include <mutex>
#include <optional>
#include <tuple>
#include <vector>

#include "device/fake/control.h"
#include "device/gpus.h"
#include "device/objects.h"
#include "support/fake_kernels.h"

namespace rondo::testing {
namespace {

using c10::DeviceIndex;

constexpr int most_gpus = 2;

// Kept until the process ends, as tensors may be.
device::Gpus& gpus() {
  static auto* const all = new device::Gpus;
  return *all;
}

device::StreamHandle handle_of(const c10::Stream& stream) {
  return reinterpret_cast<device::StreamHandle>(stream.id());
}

struct Recorded {
  const device::Gpu& gpu;
  device::Event event;
};

// The id of a stream is its CUstream. Thread-safe.
class Guard final : public c10::impl::DeviceGuardImplInterface {
 public:
  c10::DeviceType type() const override { return c10::kCUDA; }
  c10::Device exchangeDevice(c10::Device device) const override {
    const c10::Device before = getDevice();
    setDevice(device);
    return before;
  }
  c10::Device getDevice() const override { return {c10::kCUDA, device_}; }
  void setDevice(c10::Device device) const override { device_ = device.index(); }
  void uncheckedSetDevice(c10::Device device) const noexcept override { device_ = device.index(); }
  DeviceIndex deviceCount() const noexcept override { return most_gpus; }

  c10::Stream getStream(c10::Device device) const override {
    return c10::Stream(c10::Stream::UNSAFE, device, current_[place(device)]);
  }
  c10::Stream getDefaultStream(c10::Device device) const override {
    return c10::Stream(c10::Stream::DEFAULT, device);
  }
  c10::Stream getNewStream(c10::Device device, int) const override {
    const std::lock_guard lock(mutex_);
    const device::Stream& made = streams_.emplace_back(gpus().gpu(device.index()));
    return c10::Stream(c10::Stream::UNSAFE, device, reinterpret_cast<c10::StreamId>(made.get()));
  }
  // The pool has one stream for each GPU.
  c10::Stream getStreamFromGlobalPool(c10::Device device, bool) const override {
    const std::lock_guard lock(pool_mutex_);
    std::optional<c10::Stream>& stream = pool_[place(device)];
    if (!stream) stream = getNewStream(device, 0);
    return *stream;
  }
  c10::Stream exchangeStream(c10::Stream stream) const override {
    const c10::Stream before = getStream(stream.device());
    current_[place(stream.device())] = stream.id();
    return before;
  }
  void* getStreamNativeHandle(c10::Stream stream) const override { return handle_of(stream); }

  void record(void** event, const c10::Stream& stream, DeviceIndex, c10::EventFlag) const override {
    const device::Gpu& gpu = gpus().gpu(stream.device_index());
    if (*event == nullptr) *event = new Recorded{gpu, device::Event(gpu)};
    const device::Current current(gpu);
    gpu.check(static_cast<Recorded*>(*event)->event.record(handle_of(stream)), "cuEventRecord");
  }
  void block(void* event, const c10::Stream& stream) const override {
    const device::Gpu& gpu = gpus().gpu(stream.device_index());
    const device::Current current(gpu);
    gpu.check(gpu.driver().stream_wait_event(handle_of(stream),
                                             static_cast<Recorded*>(event)->event.get(), 0),
              "cuStreamWaitEvent");
  }
  bool queryEvent(void* event) const override {
    const Recorded& recorded = *static_cast<Recorded*>(event);
    const device::Current current(recorded.gpu);
    const device::Status status = recorded.event.query();
    if (status != device::not_ready) recorded.gpu.check(status, "cuEventQuery");
    return status == device::success;
  }
  void destroyEvent(void* event, DeviceIndex) const noexcept override {
    delete static_cast<Recorded*>(event);
  }
  void recordDataPtrOnStream(const c10::DataPtr& memory, const c10::Stream& stream) const override;

 private:
  static std::size_t place(c10::Device device) { return static_cast<std::size_t>(device.index()); }

  static thread_local DeviceIndex device_;
  static thread_local std::array<c10::StreamId, most_gpus> current_;
  mutable std::mutex mutex_;
  mutable std::deque<device::Stream> streams_;
  mutable std::mutex pool_mutex_;
  mutable std::array<std::optional<c10::Stream>, most_gpus> pool_;
};

thread_local DeviceIndex Guard::device_ = 0;
thread_local std::array<c10::StreamId, most_gpus> Guard::current_{};

const Guard& guard() {
  static const auto* const one = new Guard;
  return *one;
}

// Gives memory away again as torch's allocator does: at once, to who works on the stream on which
// it was made. Memory that another stream has used is not given away again. Thread-safe.
class Blocks {
 public:
  static Blocks& all() {
    static auto* const one = new Blocks;
    return *one;
  }
  void* take(c10::Device device, std::size_t bytes) {
    const Place place{device.index(), guard().getStream(device).id(), bytes};
    const std::lock_guard lock(mutex_);
    if (std::vector<void*>& list = free_[place]; !list.empty()) {
      void* const memory = list.back();
      list.pop_back();
      used_[memory] = place;
      return memory;
    }
    // Kept until the process ends: to free it would wait for streams.
    const auto* const made = new device::DeviceMemory(gpus().gpu(device.index()), bytes);
    void* const memory = reinterpret_cast<void*>(made->address());
    used_[memory] = place;
    return memory;
  }
  void give_back(void* memory) {
    const std::lock_guard lock(mutex_);
    if (const auto used = used_.extract(memory)) free_[used.mapped()].push_back(memory);
  }
  void record(void* memory, c10::StreamId stream) {
    const std::lock_guard lock(mutex_);
    const auto used = used_.find(memory);
    if (used != used_.end() && std::get<1>(used->second) != stream) used_.erase(used);
  }

 private:
  using Place = std::tuple<DeviceIndex, c10::StreamId, std::size_t>;
  std::mutex mutex_;
  std::map<void*, Place> used_;
  std::map<Place, std::vector<void*>> free_;
};

void Guard::recordDataPtrOnStream(const c10::DataPtr& memory, const c10::Stream& stream) const {
  Blocks::all().record(memory.get(), stream.id());
}

// From its first element to the end of its last.
std::size_t bytes_of(const at::Tensor& tensor) {
  return at::detail::computeStorageNbytes(tensor.sizes(), tensor.strides(), tensor.element_size());
}

at::Tensor empty_strided(at::IntArrayRef sizes, at::IntArrayRef strides, at::ScalarType type,
                         c10::Device device) {
  const std::size_t bytes =
      at::detail::computeStorageNbytes(sizes, strides, c10::elementSize(type));
  void* const memory = Blocks::all().take(device, std::max<std::size_t>(bytes, 1));
  return at::for_blob(memory, sizes)
      .strides(strides)
      .deleter([](void* freed) { Blocks::all().give_back(freed); })
      .options(at::TensorOptions(type).device(device))
      .target_device(device)
      .make_tensor();
}

// torch's functions of these names. Where torch leaves the GPU open it is the current one.
c10::Device device_or_current(std::optional<at::Device> device) {
  return device && device->has_index() ? *device : guard().getDevice();
}
at::Tensor torch_empty(at::IntArrayRef sizes, std::optional<at::ScalarType> type,
                       std::optional<at::Layout>, std::optional<at::Device> device,
                       std::optional<bool>, std::optional<at::MemoryFormat> format) {
  const at::Tensor shape = at::empty(sizes, at::TensorOptions(at::kMeta).memory_format(format));
  return empty_strided(sizes, shape.strides(), type.value_or(at::kFloat),
                       device_or_current(device));
}
at::Tensor torch_empty_strided(at::IntArrayRef sizes, at::IntArrayRef strides,
                               std::optional<at::ScalarType> type, std::optional<at::Layout>,
                               std::optional<at::Device> device, std::optional<bool>) {
  return empty_strided(sizes, strides, type.value_or(at::kFloat), device_or_current(device));
}
// Returns the same elements where the host reaches them.
at::Tensor on_host(const at::Tensor& tensor) {
  const at::Storage& storage = tensor.storage();
  void* const memory =
      FakeCuda().storage(reinterpret_cast<device::Address>(storage.data()), storage.nbytes());
  return at::from_blob(memory, {static_cast<std::int64_t>(storage.nbytes())},
                       at::TensorOptions(at::kByte))
      .view(tensor.scalar_type())
      .as_strided(tensor.sizes(), tensor.strides(), tensor.storage_offset());
}
// On the current stream.
at::Tensor& torch_copy(at::Tensor& to, const at::Tensor& from, bool) {
  struct Copy {
    at::Tensor host_to, host_from;  // memory of GPUs stays, whoever has it
  };
  if (from.numel() == 0) return to;
  const device::Gpu& gpu = gpus().gpu(to.device().index());
  const device::Current current(gpu);
  auto* const copy = new Copy{on_host(to), on_host(from)};
  gpu.check(gpu.driver().launch_host_function(
                handle_of(guard().getStream(to.device())),
                [](void* argument) {
                  const c10::InferenceMode any_tensor;
                  auto& copy = *static_cast<Copy*>(argument);
                  copy.host_to.copy_(copy.host_from);
                },
                copy),
            "cuLaunchHostFunc");
  return to;
}

// DDP flattens tensors with it: in one dimension.
at::Tensor torch_cat(const at::ITensorListRef& tensors, std::int64_t) {
  std::int64_t count = 0;
  for (const at::Tensor& tensor : tensors) count += tensor.numel();
  const at::Tensor& first = *tensors.begin();
  at::Tensor all = empty_strided({count}, {1}, first.scalar_type(), first.device());
  std::int64_t offset = 0;
  for (const at::Tensor& tensor : tensors) {
    at::Tensor part = all.narrow(0, offset, tensor.numel());
    torch_copy(part, tensor, false);
    offset += tensor.numel();
  }
  return all;
}

TORCH_LIBRARY_IMPL(aten, CUDA, m) {
  m.impl("cat", &torch_cat);
  m.impl("empty.memory_format", &torch_empty);
  m.impl("empty_strided", &torch_empty_strided);
  m.impl("copy_", &torch_copy);
}

// As torch.empty, which would look for a real GPU.
at::Tensor allocate(std::int64_t count, int ordinal, const at::Tensor& like) {
  return empty_strided({count}, {1}, like.scalar_type(),
                       c10::Device(c10::kCUDA, static_cast<DeviceIndex>(ordinal)));
}

at::Tensor empty_sparse() {
  return at::detail::make_tensor<at::SparseTensorImpl>(
      c10::DispatchKeySet(c10::DispatchKey::SparseCUDA), caffe2::TypeMeta::Make<float>());
}

// A copy of a CPU tensor, with its sizes and strides, in memory of a GPU. It is there at once, so
// the memory is none that a stream still uses.
at::Tensor to_gpu(const at::Tensor& tensor, int ordinal) {
  const c10::Device device(c10::kCUDA, static_cast<DeviceIndex>(ordinal));
  const auto* const memory =
      new device::DeviceMemory(gpus().gpu(ordinal), std::max<std::size_t>(bytes_of(tensor), 1));
  at::Tensor copy = at::for_blob(reinterpret_cast<void*>(memory->address()), tensor.sizes())
                        .strides(tensor.strides())
                        .options(tensor.options().device(device))
                        .target_device(device)
                        .make_tensor();
  if (tensor.nbytes() > 0)
    FakeCuda().write(reinterpret_cast<device::Address>(copy.data_ptr()), tensor.data_ptr(),
                     bytes_of(tensor));
  return copy;
}

// Copies what is there now: it waits for no stream.
at::Tensor to_cpu(const at::Tensor& tensor) {
  at::Tensor copy =
      at::empty_strided(tensor.sizes(), tensor.strides(), tensor.options().device(c10::kCPU));
  if (tensor.nbytes() > 0)
    FakeCuda().read(copy.data_ptr(), reinterpret_cast<device::Address>(tensor.data_ptr()),
                    bytes_of(copy));
  return copy;
}

std::uintptr_t make_stream(int ordinal) {
  const c10::Device device(c10::kCUDA, static_cast<DeviceIndex>(ordinal));
  return reinterpret_cast<std::uintptr_t>(handle_of(guard().getNewStream(device, 0)));
}
// Makes it the current one of this thread, and returns the one before.
std::uintptr_t exchange_stream(int ordinal, std::uintptr_t stream) {
  const c10::Device device(c10::kCUDA, static_cast<DeviceIndex>(ordinal));
  const c10::Stream next(c10::Stream::UNSAFE, device, static_cast<c10::StreamId>(stream));
  return static_cast<std::uintptr_t>(guard().exchangeStream(next).id());
}
// The current stream comes after what the other has now.
void come_after(int ordinal, std::uintptr_t other) {
  const c10::Device device(c10::kCUDA, static_cast<DeviceIndex>(ordinal));
  c10::Event event(c10::kCUDA);
  event.record(c10::Stream(c10::Stream::UNSAFE, device, static_cast<c10::StreamId>(other)));
  event.block(guard().getStream(device));
}
// Waits for the current stream.
void synchronize(int ordinal) {
  const device::Gpu& gpu = gpus().gpu(ordinal);
  device::Event event(gpu);
  const device::Current current(gpu);
  const c10::Device device(c10::kCUDA, static_cast<DeviceIndex>(ordinal));
  gpu.check(event.record(handle_of(guard().getStream(device))), "cuEventRecord");
  gpu.check(device::wait_for(event, std::chrono::seconds{60}), "the stream");
}
void hold(std::uintptr_t stream) {
  FakeCuda().hold(reinterpret_cast<void*>(stream));
}
// The next work of any GPU breaks it.
void fail_work() {
  FakeCuda().fail_work(1, 700);
}
void let_go(std::uintptr_t stream) {
  FakeCuda().let_go(reinterpret_cast<void*>(stream));
}

// The streams that torch gives to whoever asks for one.
void for_each_of_pool(void (*function)(std::uintptr_t)) {
  for (DeviceIndex i = 0; i < most_gpus; ++i)
    function(static_cast<std::uintptr_t>(
        guard().getStreamFromGlobalPool(c10::Device(c10::kCUDA, i), false).id()));
}
void hold_pool() {
  for_each_of_pool(&hold);
}
void let_pool_go() {
  for_each_of_pool(&let_go);
}

PYBIND11_MODULE(gpus, m) {
  m.def("install", [] {
    register_device_kernels(FakeCuda());
    c10::impl::device_guard_impl_registry[static_cast<std::size_t>(c10::kCUDA)] = &guard();
    // A broadcast asks.
    py::module_::import("torch").attr("cuda").attr("get_device_capability") =
        py::cpp_function([](const py::args&) { return py::make_tuple(9, 0); });
  });
  m.def("count", [] { return most_gpus; });
  // Others may have to run Python meanwhile.
  const py::call_guard<py::gil_scoped_release> others_run;
  m.def("allocate", &allocate, py::arg("count"), py::arg("ordinal"),
        py::arg("like") = at::zeros({1}), others_run);
  m.def("empty_sparse", &empty_sparse, others_run);
  m.def("fail_work", &fail_work, others_run);
  m.def("to_gpu", &to_gpu, others_run);
  m.def("to_cpu", &to_cpu, others_run);
  m.def("make_stream", &make_stream, others_run);
  m.def("exchange_stream", &exchange_stream, others_run);
  m.def("come_after", &come_after, others_run);
  m.def("synchronize", &synchronize, others_run);
  m.def("hold", &hold, others_run);
  m.def("hold_pool", &hold_pool, others_run);
  m.def("let_pool_go", &let_pool_go, others_run);
  m.def("let_go", &let_go, others_run);
}

}  // namespace
}  // namespace rondo::testing
