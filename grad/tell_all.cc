// SPDX-License-Identifier: Apache-2.0
#include "grad/tell_all.h"

#include <system_error>

namespace rondo::grad {

namespace {

// Carries a text through Communicator::abort, which takes an error_code.
class Cause final : public std::error_category {
 public:
  explicit Cause(const std::string& text) noexcept : text_(text) {}
  const char* name() const noexcept override { return "gradient buckets"; }
  std::string message(int) const override { return text_; }

 private:
  const std::string& text_;
};

}  // namespace

void tell_all(Communicator& communicator, const std::string& text) noexcept {
  const Cause cause(text);
  communicator.abort(std::error_code(1, cause));
}

}  // namespace rondo::grad
