// SPDX-License-Identifier: Apache-2.0
#include "base/interruption.h"

#include <utility>

namespace rondo::base {

namespace {

thread_local const std::function<bool()>* wanted_here = nullptr;

}  // namespace

Interruption::Interruption(const std::function<bool()>& wanted) noexcept
    : before_(std::exchange(wanted_here, wanted ? &wanted : nullptr)) {}

Interruption::~Interruption() {
  wanted_here = before_;
}

void Interruption::check() {
  if (wanted_here == nullptr || !(*wanted_here)()) return;
  wanted_here = nullptr;
  throw Interrupted();
}

}  // namespace rondo::base
