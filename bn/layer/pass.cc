// SPDX-License-Identifier: Apache-2.0
#include "bn/layer/pass.h"

#include <rondo/batch_norm_pass.h>
#include <utility>

namespace rondo {

namespace layer {

std::unique_ptr<PassRecord> PassPool::take() {
  const std::lock_guard lock(mutex_);
  if (free_ == nullptr) return std::make_unique<PassRecord>();
  std::unique_ptr<PassRecord> record = std::move(free_);
  free_ = std::move(record->next);
  return record;
}

void PassPool::give(std::unique_ptr<PassRecord> record) noexcept {
  const std::lock_guard lock(mutex_);
  if (closed_) return;
  record->next = std::move(free_);
  free_ = std::move(record);
}

void PassPool::close() noexcept {
  const std::lock_guard lock(mutex_);
  closed_ = true;
  while (free_ != nullptr) free_ = std::move(free_->next);  // not one destructor inside the other
}

bool PassPool::closed() const noexcept {
  const std::lock_guard lock(mutex_);
  return closed_;
}

}  // namespace layer

BatchNormPass::BatchNormPass() noexcept = default;

BatchNormPass::BatchNormPass(std::shared_ptr<layer::PassPool> pool,
                             std::unique_ptr<layer::PassRecord> record) noexcept
    : pool_(std::move(pool)), record_(std::move(record)) {}

BatchNormPass::BatchNormPass(BatchNormPass&& other) noexcept = default;

BatchNormPass& BatchNormPass::operator=(BatchNormPass&& other) noexcept {
  BatchNormPass taken(std::move(other));
  std::swap(pool_, taken.pool_);
  std::swap(record_, taken.record_);
  return *this;
}

BatchNormPass::~BatchNormPass() {
  if (record_ != nullptr) pool_->give(std::move(record_));
}

}  // namespace rondo
