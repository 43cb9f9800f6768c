// SPDX-License-Identifier: Apache-2.0
#include "bn/layer/shared.h"

#include <algorithm>
#include <thread>

#include "base/cores.h"
#include "bn/layer/model.h"

namespace rondo::layer {

namespace {

// A rank that is bound to some cores uses them alone; ranks that are not bound share the host's
// cores.
int share_of_cores(int ranks) noexcept {
  const int usable = base::usable_cores();
  const int online = std::max(usable, static_cast<int>(std::thread::hardware_concurrency()));
  return std::max(1, std::min(usable, online / ranks));
}

}  // namespace

Shared& Shared::of(Communicator& communicator) {
  static constexpr char key = 0;
  lib::Attachment* kept = lib::attachment(communicator, &key);
  if (kept == nullptr)
    kept = &lib::attach(communicator, &key, std::make_unique<Shared>(communicator));
  return static_cast<Shared&>(*kept);
}

Shared::Shared(const Communicator& communicator)
    : threads_(share_of_cores(static_cast<int>(communicator.local_ranks().size()))) {}

Shared::~Shared() {
  for (Model* layer : layers_) layer->orphan();
}

std::shared_ptr<GpuKernels> Shared::kernels_on(int ordinal) {
  std::shared_ptr<GpuKernels>& kernels = gpus_[ordinal];
  if (kernels == nullptr) kernels = std::make_shared<GpuKernels>(ordinal);
  return kernels;
}

}  // namespace rondo::layer
