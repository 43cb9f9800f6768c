// SPDX-License-Identifier: Apache-2.0
//
// Batch norm over the ranks of a process group: what rondo.torch.SyncBatchNorm computes with.
//
// On a GPU passes are enqueued on the current stream. Forward and backward return when the sums of
// all ranks are on their way to the GPU.
//
// The functions do not hold Python's lock (GIL). Failures: DistBackendError with Rondo's message,
// which names ranks and layers; ValueError and TypeError for arguments that cannot be.
#pragma once

#include <torch/csrc/utils/pybind.h>

namespace rondo::python {

// Defines _c.Norm and _c.NormPass.
void bind_batch_norm(py::module& module);

}  // namespace rondo::python
