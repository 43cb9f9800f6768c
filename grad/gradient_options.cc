// SPDX-License-Identifier: Apache-2.0
#include "grad/gradient_options.h"

#include <fmt/format.h>
#include <rondo/agreement.h>
#include <rondo/error.h>

#include <algorithm>
#include <array>
#include <cstdio>
#include <string>
#include <string_view>

#include "grad/layout.h"

namespace rondo {

namespace {

constexpr std::string_view averaging_names[] = {"mean", "sum", "weighted"};

void check(const GradientOptions& options) {
  const auto refuse = [](const std::string& what) {
    throw Error(Errc::invalid_argument, fmt::format("gradient buckets: {}", what));
  };
  if (static_cast<std::size_t>(options.averaging) >= std::size(averaging_names))
    refuse(fmt::format("averaging is {}, not mean, sum or weighted", static_cast<int>(options.averaging)));
  if (options.wire && *options.wire != DType::f16 && *options.wire != DType::bf16)
    refuse(fmt::format("the wire type is {}, it must be f16 or bf16", name_of(*options.wire)));
  if (options.error_feedback && !options.wire)
    refuse("error_feedback needs a wire type: without one nothing is rounded");
  if (options.deadline.count() < 0)
    refuse(fmt::format("the deadline is {} ms, it cannot be negative", options.deadline.count()));
}

std::uint64_t flags_of(const GradientOptions& options) {
  const std::uint64_t wire = options.wire ? 1 + static_cast<std::uint64_t>(*options.wire) : 0;
  return static_cast<std::uint64_t>(options.averaging) | wire << 2 |
         static_cast<std::uint64_t>(options.error_feedback) << 8 |
         static_cast<std::uint64_t>(options.find_unused) << 9 |
         static_cast<std::uint64_t>(options.rebuild) << 10;
}

std::string text_of(const GradientOptions& options) {
  return fmt::format(
      "with first_bucket_bytes {}, bucket_bytes {}, averaging {}, wire {}{}{}{}", options.first_bucket_bytes,
      options.bucket_bytes, averaging_names[static_cast<std::size_t>(options.averaging)],
      options.wire ? name_of(*options.wire) : "none", options.error_feedback ? ", error_feedback" : "",
      options.find_unused ? ", find_unused" : "", options.rebuild ? ", rebuild" : "");
}

}  // namespace

std::vector<Parameter> checked(Communicator& communicator, std::vector<Parameter> parameters) {
  for (const Parameter& parameter : parameters) {
    if (parameter.device >= 0)
      throw Error(
          Errc::unsupported,
          fmt::format("gradient buckets: parameter '{}' is on device {}: device buffers are not supported in "
                      "this build; give it device -1 and copy its gradient to the host",
                      parameter.name, parameter.device));
    constexpr DType types[] = {DType::f64, DType::f32, DType::f16, DType::bf16};
    if (std::find(std::begin(types), std::end(types), parameter.type) == std::end(types))
      throw Error(Errc::invalid_argument,
                  fmt::format("gradient buckets: parameter '{}' is {}; gradients are f64, f32, f16 or bf16",
                              parameter.name, name_of(parameter.type)));
  }
  check_parameters(communicator, parameters);
  return parameters;
}

GradientOptions checked(Communicator& communicator, GradientOptions options) {
  check(options);
  for (std::size_t* cap : {&options.first_bucket_bytes, &options.bucket_bytes})
    *cap = std::max(cap_unit, *cap / cap_unit * cap_unit);
  if (!options.warn)
    options.warn = [](const std::string& text) { std::fprintf(stderr, "rondo: %s\n", text.c_str()); };
  const std::uint64_t said[] = {options.first_bucket_bytes / cap_unit, options.bucket_bytes / cap_unit,
                                flags_of(options)};
  std::array<double, std::size(said) * agreement_elements> sums{};
  const auto part = [&](std::size_t i) {
    return std::span(sums).subspan(i * agreement_elements).first<agreement_elements>();
  };
  for (std::size_t i = 0; i < std::size(said); ++i) put_agreement(part(i), said[i]);
  OpOptions operation;
  operation.deadline = options.deadline;
  operation.tag = "gradient options";
  const Buffer buffer = buffer_of(std::span<double>(sums));
  communicator.all_reduce(buffer, buffer, ReduceOp::sum, operation).wait();
  for (std::size_t i = 0; i < std::size(said); ++i)
    if (!agreed(part(i), communicator.size()))
      throw_disagreement(communicator, "gradient buckets", text_of(options), Priority::bulk);
  return options;
}

}  // namespace rondo
