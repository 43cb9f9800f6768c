// SPDX-License-Identifier: Apache-2.0
#include "grad/usage.h"

#include <exception>

namespace rondo::grad {

Usage::~Usage() {
  try {
    work_.wait();
  } catch (const std::exception&) {  // it has ended
  }
}

void Usage::start(const Collector& collector) {
  collector.put_given(bits_);
  const Buffer buffer = buffer_of(std::span(bits_));
  work_ = setup_.communicator.all_reduce(buffer, buffer, ReduceOp::bit_or,
                                         setup_.operation_options("gradients in use"));
}

}  // namespace rondo::grad
