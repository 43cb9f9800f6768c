// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "python/core/gil.h"

namespace rondo::python {

// Defines _core.Sampler: rondo::ShardedSampler for rondo.torch.ShardedSampler. It has no C API.
void define_sampler(py::module_& module);

}  // namespace rondo::python
