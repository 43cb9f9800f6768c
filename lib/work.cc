// SPDX-License-Identifier: Apache-2.0
#include <rondo/error.h>
#include <rondo/work.h>

#include <utility>

#include "collectives/engine/engine.h"

namespace rondo {

Work& Work::operator=(Work&& other) noexcept {
  if (this != &other) {
    if (operation_ != nullptr) operation_->drop();
    operation_ = std::exchange(other.operation_, nullptr);
  }
  return *this;
}

Work::~Work() {
  if (operation_ != nullptr) operation_->drop();
}

Work Work::share() const noexcept {
  if (operation_ != nullptr) operation_->add_reference();
  return Work(operation_);
}

namespace {

bool is_running(const operation::Operation& operation) {
  return operation.state() == operation::Operation::State::running;
}

void require_success(const operation::Operation& operation) {
  if (operation.state() == operation::Operation::State::failed)
    throw Error(operation.code, operation.message);
}

bool joined_until(operation::Operation& operation, void* stream, base::TimePoint until) {
  if (is_running(operation) &&
      !operation.engine().join(operation, static_cast<device::StreamHandle>(stream), until))
    return false;
  require_success(operation);
  return true;
}

}  // namespace

void Work::wait() const {
  if (operation_ == nullptr) return;
  if (is_running(*operation_)) operation_->engine().wait(*operation_, base::TimePoint::max());
  require_success(*operation_);
}

void Work::join(void* stream) const {
  if (operation_ == nullptr) return;
  static_cast<void>(joined_until(*operation_, stream, base::TimePoint::max()));
}

bool Work::join_for(void* stream, std::chrono::nanoseconds time) const {
  return operation_ == nullptr ||
         joined_until(*operation_, stream, base::after(base::Clock::now(), time));
}

bool Work::wait_for(std::chrono::nanoseconds time) const {
  if (operation_ == nullptr) return true;
  if (is_running(*operation_) &&
      !operation_->engine().wait(*operation_, base::after(base::Clock::now(), time)))
    return false;
  require_success(*operation_);
  return true;
}

void Work::leave() const {
  if (operation_ != nullptr && is_running(*operation_)) operation_->engine().leave(*operation_);
}

bool Work::done() const noexcept {
  return operation_ == nullptr || operation_->state() != operation::Operation::State::running;
}

std::error_code Work::error() const noexcept {
  return operation_ != nullptr && operation_->state() == operation::Operation::State::failed
             ? operation_->code
             : std::error_code{};
}

std::string Work::message() const {
  return operation_ != nullptr && operation_->state() == operation::Operation::State::failed
             ? operation_->message
             : std::string{};
}

int Work::source() const noexcept {
  return operation_ != nullptr && operation_->state() == operation::Operation::State::done
             ? operation_->source()
             : -1;
}

void Work::on_done(std::function<void(std::error_code)> function) const {
  if (operation_ == nullptr) return function({});
  if (operation_->state() != operation::Operation::State::running)
    return function(operation_->code);
  operation_->engine().set_callback(*operation_, std::move(function));
}

}  // namespace rondo
