// SPDX-License-Identifier: Apache-2.0
#include "modules.h"

#include <cstdint>
#include <cstring>
#include <deque>
#include <map>
#include <mutex>
#include <unordered_map>

#include "handles.h"
#include "quiet.h"

struct rondo::device::ModuleObject {
  ContextHandle context = nullptr;
  bool unloaded = false;
  std::deque<FunctionObject> functions;
};

namespace fake {
namespace {

struct Kernel {
  RondoFakeKernel* run;
  std::vector<std::size_t> parameter_bytes;
};

// Fills bytes of a GPU: (Address to, uint64 bytes, uint8 value).
int fill_kernel(const RondoFakeLaunch* launch) {
  Address to = 0;
  std::uint64_t bytes = 0;
  unsigned char value = 0;
  std::memcpy(&to, launch->parameters[0], sizeof to);
  std::memcpy(&bytes, launch->parameters[1], sizeof bytes);
  std::memcpy(&value, launch->parameters[2], sizeof value);
  void* storage = nullptr;
  {
    const Quiet quiet;
    storage = memory().storage_of(to, bytes);
  }
  if (storage == nullptr) return 700;  // CUDA_ERROR_ILLEGAL_ADDRESS
  std::memset(storage, value, bytes);
  return 0;
}

// Modules and functions are never freed, so a handle that is used too late is recognized.
struct Modules {
  std::mutex mutex;
  std::map<std::string, Kernel> kernels{
      {"fake_fill", {fill_kernel, {sizeof(Address), sizeof(std::uint64_t), 1}}}};
  std::deque<rondo::device::ModuleObject> all;
  std::unordered_map<FunctionHandle, ModuleHandle> owners;  // of all functions

  bool is_module(ModuleHandle module) {
    for (auto& each : all)
      if (&each == module) return !each.unloaded;
    return false;
  }
  bool is_function(FunctionHandle function) {
    const auto found = owners.find(function);
    return found != owners.end() && !found->second->unloaded;
  }
};
Modules& modules() {
  static Modules& all = *new Modules;
  return all;
}

// The magic numbers of a fat binary, and of the wrapper that nvcc puts around it.
constexpr std::uint32_t fat_binary = 0xba55ed50, wrapped_fat_binary = 0x466243b1;
constexpr char text_image[] = "fake module";

bool is_image(const void* image) {
  std::uint32_t magic = 0;
  std::memcpy(&magic, image, sizeof magic);
  return magic == fat_binary || magic == wrapped_fat_binary ||
         std::strncmp(static_cast<const char*>(image), text_image, sizeof text_image - 1) == 0;
}

}  // namespace

void register_kernel(const std::string& name, RondoFakeKernel* run,
                     std::vector<std::size_t> parameter_bytes) {
  const std::lock_guard lock(modules().mutex);
  modules().kernels[name] = {run, std::move(parameter_bytes)};
}

Status load_module(ModuleHandle* module, const void* image, ContextHandle context) {
  if (module == nullptr || image == nullptr) return invalid_value;
  if (!is_image(image)) return invalid_image;
  const std::lock_guard lock(modules().mutex);
  rondo::device::ModuleObject& made = modules().all.emplace_back();
  made.context = context;
  *module = &made;
  count_handle(rondo_fake_modules, 1);
  return 0;
}

Status unload_module(ModuleHandle module) {
  const std::lock_guard lock(modules().mutex);
  if (!modules().is_module(module)) return invalid_handle;
  module->unloaded = true;
  count_handle(rondo_fake_modules, -1);
  return 0;
}

Status find_function(FunctionHandle* function, ModuleHandle module, const char* name) {
  const std::lock_guard lock(modules().mutex);
  if (function == nullptr || name == nullptr) return invalid_value;
  if (!modules().is_module(module)) return invalid_handle;
  const auto kernel = modules().kernels.find(name);
  if (kernel == modules().kernels.end()) return not_found;
  rondo::device::FunctionObject& made = module->functions.emplace_back();
  made.context = module->context;
  made.run = kernel->second.run;
  made.parameter_bytes = kernel->second.parameter_bytes;
  modules().owners[&made] = module;
  *function = &made;
  return 0;
}

std::unique_ptr<Work> make_kernel_work(FunctionHandle function, const RondoFakeLaunch& launch,
                                       ContextHandle context) {
  const std::lock_guard lock(modules().mutex);
  if (!modules().is_function(function) || function->context != context) return nullptr;
  std::vector<std::vector<std::byte>> parameters;
  for (std::size_t at = 0; at < function->parameter_bytes.size(); ++at) {
    const auto* const from = static_cast<const std::byte*>(launch.parameters[at]);
    parameters.emplace_back(from, from + function->parameter_bytes[at]);
  }
  return std::make_unique<KernelWork>(function->run, launch, std::move(parameters));
}

}  // namespace fake
