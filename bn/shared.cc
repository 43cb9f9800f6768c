// SPDX-License-Identifier: Apache-2.0
#include "bn/shared.h"

#include <algorithm>
#include <thread>

#include "base/cores.h"
#include "bn/layer.h"

namespace rondo::bn {

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
  Attachment* kept = communicator.attachment(&key);
  if (kept == nullptr) kept = &communicator.attach(&key, std::make_unique<Shared>(communicator));
  return static_cast<Shared&>(*kept);
}

LayerNames::Use::Use(LayerNames& names, std::string_view name) : names_(&names) {
  std::pair<std::string, std::size_t> key{name, 0};
  auto& used = names.used_;
  for (auto at = used.lower_bound(key); at != used.end() && *at == key; ++at) ++key.second;
  used_ = used.insert(std::move(key)).first;
}

Shared::Shared(const Communicator& communicator)
    : threads_(share_of_cores(static_cast<int>(communicator.local_ranks().size()))) {}

Shared::~Shared() {
  for (Layer* layer : layers_) layer->orphan();
}

std::shared_ptr<GpuKernels> Shared::kernels_on(int ordinal) {
  std::shared_ptr<GpuKernels>& kernels = gpus_[ordinal];
  if (kernels == nullptr) kernels = std::make_shared<GpuKernels>(ordinal);
  return kernels;
}

}  // namespace rondo::bn
