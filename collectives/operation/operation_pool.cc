// SPDX-License-Identifier: Apache-2.0
#include "collectives/operation/operation_pool.h"

#include <memory>
#include <utility>

#include "collectives/operation/operation.h"

namespace rondo::operation {

namespace {

// Stands for "closed" at the head of the list; never dereferenced.
Operation* closed_mark() noexcept {
  alignas(Operation) static std::byte mark;
  return reinterpret_cast<Operation*>(&mark);
}

}  // namespace

void OperationPool::give(Operation& operation) noexcept {
  Operation* head = given_.load(std::memory_order_acquire);
  do {
    if (head == closed_mark()) return operation.destroy();
    operation.next = head;
  } while (!given_.compare_exchange_weak(head, &operation, std::memory_order_release,
                                         std::memory_order_acquire));
}

// Takes the whole list at once, so no operation can leave its head and return meanwhile.
Operation* OperationPool::take() noexcept {
  if (free_ == nullptr) free_ = given_.exchange(nullptr, std::memory_order_acquire);
  if (free_ == nullptr) return nullptr;
  return std::exchange(free_, free_->next);
}

void OperationPool::close() noexcept {
  Operation* const given = given_.exchange(closed_mark(), std::memory_order_acq_rel);
  for (Operation* first : {std::exchange(free_, nullptr), given})
    while (first != nullptr) std::exchange(first, first->next)->destroy();
}

}  // namespace rondo::operation
