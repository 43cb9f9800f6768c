// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <unistd.h>

#include <utility>

#include "base/own_descriptors.h"

namespace rondo::base {

// Owns a descriptor and closes it at the end. In a child made by fork(), own_descriptors.h has
// closed it already, so the child's copy of this object leaves the number alone. Reentrant.
class FileDescriptor {
 public:
  FileDescriptor() noexcept = default;
  explicit FileDescriptor(int number) noexcept : number_(number) { add_own_descriptor(number_); }
  FileDescriptor(FileDescriptor&& other) noexcept
      : number_(std::exchange(other.number_, -1)), generation_(other.generation_) {}
  FileDescriptor& operator=(FileDescriptor&& other) noexcept {
    if (this != &other) {
      reset();
      number_ = std::exchange(other.number_, -1);
      generation_ = other.generation_;
    }
    return *this;
  }
  ~FileDescriptor() { reset(); }

  int get() const noexcept { return number_; }
  explicit operator bool() const noexcept { return number_ >= 0; }
  int release() noexcept {
    if (is_here()) remove_own_descriptor(number_);
    return std::exchange(number_, -1);
  }
  // Lets a child made by fork() keep it open: for a child that is about to start a program.
  void keep_in_child() noexcept {
    if (is_here()) remove_own_descriptor(number_);
  }
  void reset() noexcept {
    if (number_ >= 0 && is_here()) {
      remove_own_descriptor(number_);
      ::close(number_);
    }
    number_ = -1;
  }

 private:
  bool is_here() const noexcept { return generation_ == process_generation(); }

  int number_ = -1;
  unsigned generation_ = process_generation();
};

}  // namespace rondo::base
