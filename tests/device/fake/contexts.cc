// SPDX-License-Identifier: Apache-2.0
#include "contexts.h"

#include <deque>
#include <vector>

#include "settings.h"

namespace fake {
namespace {

std::deque<rondo::device::ContextObject>& contexts() {
  static auto& all = *[] {
    auto* const made =
        new std::deque<rondo::device::ContextObject>(static_cast<std::size_t>(settings().gpus));
    for (int ordinal = 0; auto& each : *made) each.ordinal = ordinal++;
    return made;
  }();
  return all;
}

thread_local std::vector<ContextHandle> pushed;

}  // namespace

ContextHandle context_of(int ordinal) {
  if (ordinal < 0 || ordinal >= settings().gpus) return nullptr;
  return &contexts()[static_cast<std::size_t>(ordinal)];
}

bool is_context(ContextHandle context) {
  for (auto& each : contexts())
    if (&each == context) return true;
  return false;
}

ContextHandle current_context() {
  return pushed.empty() ? nullptr : pushed.back();
}
void push_context(ContextHandle context) {
  pushed.push_back(context);
}
void pop_context() {
  pushed.pop_back();
}

}  // namespace fake
