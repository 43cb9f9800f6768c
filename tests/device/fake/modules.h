// SPDX-License-Identifier: Apache-2.0
//
// Modules, and the kernels compiled for the host that stand in for theirs. Thread-safe, quiet.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "contexts.h"
#include "control.h"
#include "work.h"

struct rondo::device::FunctionObject {
  ContextHandle context = nullptr;
  RondoFakeKernel* run = nullptr;
  std::vector<std::size_t> parameter_bytes;
};

namespace fake {

using rondo::device::FunctionHandle;
using rondo::device::ModuleHandle;

void register_kernel(const std::string& name, RondoFakeKernel* run,
                     std::vector<std::size_t> parameter_bytes);

// image: a fat binary, or the text "fake module". Every module has all kernels.
Status load_module(ModuleHandle* module, const void* image, ContextHandle context);
Status unload_module(ModuleHandle module);
Status find_function(FunctionHandle* function, ModuleHandle module, const char* name);
// Copies the parameters. Null: there is no such function, or it belongs to another context.
std::unique_ptr<Work> make_kernel_work(FunctionHandle function, const RondoFakeLaunch& launch,
                                       ContextHandle context);

}  // namespace fake
