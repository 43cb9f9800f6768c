// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include <array>
#include <cstddef>
#include <string>
#include <string_view>

#include <rondo/info.h>

#include "collectives/kernels/device/image.h"
#include "device/gpu.h"

namespace rondo {
namespace {

// CUdevice_attribute
enum Attribute : int {
  integrated = 18,
  compute_mode = 20,
  unified_addressing = 41,
  capability_major = 75,
  capability_minor = 76,
  virtual_memory = 102,
  descriptor_handles = 103
};
// CUcomputemode
constexpr int prohibited = 2, exclusive_process = 3;

// Asks for what one GPU is. The first answer that the driver refuses becomes GpuInfo::error.
class Questions {
 public:
  Questions(const device::CudaDriver& driver, GpuInfo& info) : driver_(driver), info_(info) {}

  bool check(device::Status status, std::string_view function) {
    if (status == device::success) return true;
    if (info_.error.empty())
      info_.error = fmt::format("{}: {}", function, device::describe(driver_, status));
    return false;
  }
  // 0 where the driver does not say.
  int attribute(Attribute which) {
    int value = 0;
    return check(driver_.device_get_attribute(&value, which, info_.device),
                 fmt::format("cuDeviceGetAttribute {}", static_cast<int>(which)))
               ? value
               : 0;
  }

 private:
  const device::CudaDriver& driver_;
  GpuInfo& info_;
};

// "GPU-9f6e8c0a-1b2c-3d4e-5f60-718293a4b5c6"
std::string text_of(const device::Uuid& uuid) {
  std::string text = "GPU";
  for (std::size_t i = 0; i < sizeof uuid.bytes; ++i) {
    if (i == 0 || i == 4 || i == 6 || i == 8 || i == 10) text += '-';
    text += fmt::format("{:02x}", static_cast<unsigned char>(uuid.bytes[i]));
  }
  return text;
}

std::string why_exclusive(int mode) {
  if (mode == prohibited)
    return "no process can use it: its compute mode is PROHIBITED; nvidia-smi -c DEFAULT changes "
           "that";
  if (mode == exclusive_process)
    return "one process at a time can use it: its compute mode is EXCLUSIVE_PROCESS; nvidia-smi -c "
           "DEFAULT changes that";
  return {};
}

void describe_sharing(Questions& ask, GpuInfo& info) {
  if (ask.attribute(virtual_memory) == 0)
    info.why_no_descriptors = "its driver has no virtual memory management";
  else if (ask.attribute(descriptor_handles) == 0)
    info.why_no_descriptors = "its driver exports no memory as descriptors";
  if (ask.attribute(unified_addressing) == 0)
    info.why_no_handles = "it has no unified addressing";
  else if (info.integrated)
    info.why_no_handles = "it shares the memory of the processor";
  info.why_exclusive = why_exclusive(ask.attribute(compute_mode));
}

GpuInfo describe_gpu(const device::CudaDriver& driver, int number, int count) {
  GpuInfo info;
  info.device = number;
  Questions ask(driver, info);
  std::array<char, 256> text{};
  constexpr int room = static_cast<int>(text.size()) - 1;
  if (ask.check(driver.device_get_name(text.data(), room, number), "cuDeviceGetName"))
    info.name = text.data();
  text = {};
  if (ask.check(driver.device_get_pci_bus_id(text.data(), room, number), "cuDeviceGetPCIBusId"))
    info.pci_address = text.data();
  device::Uuid uuid{};
  if (ask.check(driver.device_get_uuid(&uuid, number), "cuDeviceGetUuid"))
    info.uuid = text_of(uuid);
  std::size_t bytes = 0;
  if (ask.check(driver.device_total_memory(&bytes, number), "cuDeviceTotalMem"))
    info.memory_bytes = bytes;
  info.capability_major = ask.attribute(capability_major);
  info.capability_minor = ask.attribute(capability_minor);
  info.integrated = ask.attribute(integrated) != 0;
  describe_sharing(ask, info);
  for (int other = 0; other < count; ++other) {
    int can = 0;
    if (other != number &&
        ask.check(driver.device_can_access_peer(&can, number, other), "cuDeviceCanAccessPeer") &&
        can != 0)
      info.peers.push_back(other);
  }
  return info;
}

}  // namespace

GpuReport gather_gpus() {
  GpuReport report;
  const device::LoadedDriver loaded = device::load_driver();
  if (!loaded.driver) {
    report.why = loaded.obstacle;
    return report;
  }
  if (kernels::device_image() == nullptr)
    report.why_no_kernels = "it was made without nvcc (-Dcuda)";
  const device::CudaDriver& driver = *loaded.driver;
  int version = 0;
  if (driver.driver_get_version(&version) == device::success)
    report.driver_version = fmt::format("{}.{}", version / 1000, version % 1000 / 10);
  int count = 0;
  if (const device::Status status = driver.device_get_count(&count); status != device::success)
    report.why = "cuDeviceGetCount: " + device::describe(driver, status);
  else if (count == 0)
    report.why = "the CUDA driver shows this process no GPU; check CUDA_VISIBLE_DEVICES";
  for (int number = 0; number < count; ++number)
    report.gpus.push_back(describe_gpu(driver, number, count));
  return report;
}

}  // namespace rondo
