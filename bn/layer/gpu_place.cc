// SPDX-License-Identifier: Apache-2.0
#include "bn/layer/gpu_place.h"

#include <fmt/format.h>
#include <rondo/error.h>

#include <utility>

#include "device/keep.h"
#include "device/pointer.h"

namespace rondo::layer {

namespace {

const std::byte* bytes_at(const void* data) noexcept {
  return static_cast<const std::byte*>(data);
}

// Keeps the GPU, so it may outlive its layer. Thread-bound to whoever holds the pass.
class GpuRecord final : public RecordMemory {
 public:
  GpuRecord(std::shared_ptr<const GpuKernels> kernels, std::size_t elements)
      : kernels_(std::move(kernels)),
        memory_(std::make_unique<GpuArrays>(kernels_->gpu(), elements)),
        use_(*kernels_) {}
  ~GpuRecord() override {
    if (!use_.settle()) device::keep_until_exit(std::move(memory_));
  }
  double* data() const noexcept override { return memory_->data(); }
  StreamUse& use() noexcept { return use_; }

 private:
  const std::shared_ptr<const GpuKernels> kernels_;
  std::unique_ptr<GpuArrays> memory_;
  StreamUse use_;
};

StreamUse& use_of(RecordMemory& record) noexcept {
  return static_cast<GpuRecord&>(record).use();
}

}  // namespace

GpuPlace::GpuPlace(std::shared_ptr<GpuKernels> kernels, DType type, std::size_t channels,
                   std::size_t array_elements)
    : kernels_(std::move(kernels)),
      type_(type),
      channels_(channels),
      first_stream_(gpu()),
      stream_(first_stream_->get()),
      use_(*kernels_) {
  kernels_->load(type_);
  arrays_ = std::make_unique<GpuArrays>(gpu(), array_elements);
}

GpuPlace::~GpuPlace() {
  if (use_.settle()) return;
  device::keep_until_exit(std::move(arrays_));
  device::keep_until_exit(std::move(partials_));
}

std::unique_ptr<RecordMemory> GpuPlace::make_record(std::size_t elements) const {
  return std::make_unique<GpuRecord>(kernels_, elements);
}

std::string GpuPlace::problem_of(const void* data, std::size_t bytes) {
  if (bytes == 0) return {};
  for (const Known& known : known_)
    if (known.data == data && known.bytes == bytes) return {};
  const device::Current current(gpu());
  std::string problem = device::problem_of_memory(gpu(), data, bytes, "the layer is");
  if (!problem.empty()) return problem;
  known_[next_known_] = {data, bytes};
  next_known_ = (next_known_ + 1) % known_.size();
  return {};
}

std::string GpuPlace::use_stream(void* stream) {
  stream_ = static_cast<device::StreamHandle>(stream);
  return device::problem_of_stream(gpu(), stream_);
}

void GpuPlace::begin(RecordMemory* record) {
  use_.begin(stream_);
  if (record != nullptr) use_of(*record).begin(stream_);
}

void GpuPlace::end(RecordMemory* record) {
  use_.end(stream_);
  if (record != nullptr) use_of(*record).end(stream_);
}

std::optional<device::Current> GpuPlace::current() const {
  return std::optional<device::Current>(std::in_place, gpu());
}

void GpuPlace::await_start() {
  if (!settle())
    throw Error(Errc::system, fmt::format("batch norm: GPU {} does not run kernels: nothing has "
                                          "ended in 10 s",
                                          gpu().ordinal()));
  first_stream_.reset();
}

void GpuPlace::sum(const SumTask& task) {
  SumArguments arguments{};
  arguments.x = bytes_at(task.x.data);
  arguments.dy = bytes_at(task.dy);
  arguments.shape = shape_of(task.x, task.layout, channels_);
  arguments.center = task.center;
  arguments.wanted = task.wanted;
  cut(arguments, type_);
  const std::size_t elements = partial_elements(arguments);
  if (partials_ == nullptr || partials_->elements() < elements) {
    use_.end(stream_);
    if (!use_.settle()) device::keep_until_exit(std::move(partials_));
    partials_.reset();
    partials_ = std::make_unique<GpuArrays>(gpu(), elements);
  }
  parts_ = arguments.parts;
  arguments.partials = partials_->data();
  // Where no channel is wanted, the blocks end at once.
  launch(task.dy == nullptr ? DeviceKernel::moments : DeviceKernel::gradients, arguments,
         blocks_of(arguments));
}

void GpuPlace::fold(const ChannelArguments& given) {
  ChannelArguments arguments = given;
  if (arguments.count > 0 && arguments.task != ChannelTask::nothing) {
    arguments.parts = parts_;
    arguments.partials = partials_->data();
  }
  launch(DeviceKernel::fold, arguments, blocks_of_fold(channels_));
}

void GpuPlace::run(const ChannelArguments& arguments) {
  launch(DeviceKernel::channels, arguments, blocks_of_channels(channels_));
}

void GpuPlace::map(const MapTask& task) {
  MapArguments arguments{};
  arguments.x = bytes_at(task.x.data);
  arguments.dy = bytes_at(task.dy);
  arguments.out = static_cast<std::byte*>(task.out);
  arguments.lines = task.lines;
  arguments.shape = shape_of(task.x, task.layout, channels_);
  arguments.access = access_of(arguments.shape, type_, {task.x.data, task.dy, task.out});
  launch(task.dy == nullptr ? DeviceKernel::forward : DeviceKernel::backward, arguments,
         blocks_of(arguments, type_));
}

}  // namespace rondo::layer
