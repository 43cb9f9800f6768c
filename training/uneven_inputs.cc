// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include <array>
#include <string>

#include <rondo/agreement.h>
#include <rondo/error.h>
#include <rondo/uneven_inputs.h>

namespace rondo {

bool UnevenInputs::next(bool have) {
  if (ended_)
    throw Error(
        Errc::invalid_argument,
        fmt::format(
            "rank {}: uneven inputs: next() was called although it has returned false; make new "
            "UnevenInputs for the next epoch",
            communicator_->rank()));
  ++calls_;
  const bool again = have && said_no_;
  said_no_ = said_no_ || !have;
  std::array<double, 1 + agreement_elements> sums{have ? 1.0 : 0.0};
  const auto same = std::span(sums).last<agreement_elements>();
  put_agreement(same, 2 * calls_ + (again ? 1 : 0));
  const OpOptions options{.priority = Priority::urgent, .tag = "uneven inputs"};
  const Buffer buffer{sums.data(), sums.size(), DType::f64};
  communicator_->all_reduce(buffer, buffer, ReduceOp::sum, options).wait();
  if (!agreed(same, communicator_->size())) {
    const std::string mine =
        again ? fmt::format("is in call {} of next() with a batch, although it had none", calls_)
              : fmt::format("is in call {} of next()", calls_);
    throw_disagreement(*communicator_, "uneven inputs", mine);
  }
  active_ = static_cast<int>(sums[0]);
  ended_ = active_ == 0;
  return !ended_;
}

void UnevenInputs::shadow_step() const {
  for (const std::function<void()>& operation : shadows_) operation();
}

}  // namespace rondo
