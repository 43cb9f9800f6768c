// SPDX-License-Identifier: Apache-2.0
//
// Gives out operations of one kind: used ones where the pool has any, new ones otherwise.
//
// Threads: thread-bound to whoever holds the engine's lock. Operations may outlive the source.
#pragma once

#include <memory>

#include "collectives/operation/operation.h"
#include "collectives/operation/operation_pool.h"

namespace rondo::operation {

template <class Kind>
class OperationSource {
 public:
  explicit OperationSource(engine::Engine& engine) : engine_(engine) {}
  ~OperationSource() { pool_->close(); }
  OperationSource(const OperationSource&) = delete;
  OperationSource& operator=(const OperationSource&) = delete;

  // The result has one reference. Throws std::bad_alloc.
  Taken<Kind> take() {
    Operation* const operation = pool_->take();
    if (operation == nullptr) return Taken<Kind>(new Kind(engine_, pool_));
    operation->renew();
    return Taken<Kind>(static_cast<Kind*>(operation));  // the pool holds operations of one kind
  }

 private:
  engine::Engine& engine_;
  const std::shared_ptr<OperationPool> pool_ = std::make_shared<OperationPool>();
};

}  // namespace rondo::operation
