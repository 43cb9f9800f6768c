// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>

#include "bn/layer/device/objects.h"
#include "bn/layer/place.h"

namespace rondo::layer {

// A layer on a GPU. What work may still use when the layer goes is never freed.
class GpuPlace final : public Place {
 public:
  // Throws Error(system).
  GpuPlace(std::shared_ptr<GpuKernels> kernels, DType type, std::size_t channels,
           std::size_t array_elements);
  ~GpuPlace() override;

  double* arrays() const noexcept override { return arrays_->data(); }
  std::unique_ptr<RecordMemory> make_record(std::size_t elements) const override;
  std::string problem_of(const void* data, std::size_t bytes) override;
  std::string use_stream(void* stream) override;
  void begin(RecordMemory* record) override;
  void end(RecordMemory* record) override;
  std::optional<device::Current> current() const override;
  void await_start() override;
  bool settle() const noexcept override { return use_.settle(); }
  void sum(const SumTask& task) override;
  void fold(const ChannelArguments& arguments) override;
  void run(const ChannelArguments& arguments) override;
  void map(const MapTask& task) override;
  int repeats() const noexcept override { return 1; }

 private:
  const device::Gpu& gpu() const noexcept { return kernels_->gpu(); }
  template <class Arguments>
  void launch(DeviceKernel kernel, const Arguments& arguments, unsigned blocks) const {
    kernels_->launch(kernel, type_, arguments, blocks, stream_);
  }

  const std::shared_ptr<GpuKernels> kernels_;
  const DType type_;
  const std::size_t channels_;
  std::optional<device::Stream> first_stream_;  // until the first work has ended
  device::StreamHandle stream_;
  std::unique_ptr<GpuArrays> arrays_, partials_;
  std::uint32_t parts_ = 0;  // that partials_ has now
  StreamUse use_;            // of both
  struct Known {
    const void* data;
    std::size_t bytes;
  };
  std::array<Known, 8> known_{};  // memory that was checked; the oldest is replaced
  std::size_t next_known_ = 0;
};

}  // namespace rondo::layer
