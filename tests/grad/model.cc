// SPDX-License-Identifier: Apache-2.0
#include "grad/model.h"

#include <cmath>
#include <cstring>

#include "catch.h"
#include "support/values.h"

#include <rondo/convert.h>

namespace rondo::testing {

Model Model::mixed() {
  return Model({{300, DType::f32},
                {17, DType::f64},
                {129, DType::f16},
                {0, DType::f32},
                {1, DType::bf16},
                {1000, DType::f32},
                {64, DType::bf16},
                {5, DType::f64},
                {33, DType::f32},
                {250, DType::f16}});
}

Model Model::of(std::initializer_list<std::size_t> counts, DType type) {
  std::vector<Tensor> tensors;
  for (const std::size_t count : counts) tensors.push_back({count, type});
  return Model(tensors);
}

double Model::value(std::size_t step, int rank, std::size_t parameter, std::size_t element) const {
  const std::uint64_t drawn =
      testing::mixed(step * 64 + static_cast<std::uint64_t>(rank), parameter, element);
  return static_cast<double>(drawn % (2 * steps_ + 1)) / static_cast<double>(steps_) - 1;
}

double element_of(const Buffer& buffer, std::size_t index) {
  const auto* bytes = static_cast<const std::byte*>(buffer.data) + index * size_of(buffer.type);
  if (buffer.type == DType::f64) {
    double value = 0;
    std::memcpy(&value, bytes, sizeof value);
    return value;
  }
  float value = 0;
  convert(bytes, buffer.type, &value, DType::f32, 1);
  return value;
}

void set_element(const Buffer& buffer, std::size_t index, double value) {
  auto* bytes = static_cast<std::byte*>(buffer.data) + index * size_of(buffer.type);
  if (buffer.type == DType::f64) {
    std::memcpy(bytes, &value, sizeof value);
    return;
  }
  const auto narrow = static_cast<float>(value);
  convert(&narrow, DType::f32, bytes, buffer.type, 1);
}

void Model::write(Buffer view, std::size_t step, int rank, std::size_t parameter,
                  double times) const {
  for (std::size_t i = 0; i < view.count; ++i)
    set_element(view, i, times * value(step, rank, parameter, i));
}

Bytes Model::gradient(std::size_t step, int rank, std::size_t parameter) const {
  Bytes gradient(bytes(parameter));
  write(view(gradient, parameter), step, rank, parameter);
  return gradient;
}

void fill(const Buffer& buffer, double value) {
  for (std::size_t i = 0; i < buffer.count; ++i) set_element(buffer, i, value);
}

Bytes bytes_of(const Buffer& buffer) {
  const auto* bytes = static_cast<const std::byte*>(buffer.data);
  return buffer.count == 0 ? Bytes() : Bytes(bytes, bytes + buffer.count * size_of(buffer.type));
}

std::vector<Bytes> all_bytes(const GradientBuckets& buckets) {
  std::vector<Bytes> all;
  for (std::size_t i = 0; i < buckets.parameter_count(); ++i)
    all.push_back(bytes_of(buckets.gradient(i)));
  return all;
}

Setup ranks(int size, Over over) {
  Setup setup;
  setup.size = size;
  setup.over = over;
  return setup;
}

Setup over_each(int size) {
  return ranks(size, GENERATE(Over::mem, Over::tcp, Over::shm));
}

GradientOptions small_buckets(std::size_t cap) {
  GradientOptions options;
  options.first_bucket_bytes = options.bucket_bytes = cap;
  return options;
}

void run_each(const Setup& setup, const std::function<void(Communicator&, int)>& body) {
  CHECK_NOTHROW(run_communicators(setup, Catch::getResultCapture().getCurrentTestName(), body));
}

void run_buckets(const Setup& setup, const Model& model, const GradientOptions& options,
                 const std::function<void(GradientBuckets&, Communicator&, int)>& body) {
  run_each(setup, [&](Communicator& c, int rank) {
    GradientBuckets buckets(c, model.parameters(), options);
    body(buckets, c, rank);
  });
}

void all_ready(GradientBuckets& buckets) {
  for (std::size_t i = buckets.parameter_count(); i-- > 0;) buckets.ready(i);
}

void run_step(GradientBuckets& buckets, const Model& model, std::size_t step, int rank,
              const StepOptions& options) {
  buckets.begin_step(options);
  for (std::size_t i = model.size(); i-- > 0;) {
    model.write(buckets.gradient(i), step, rank, i);
    buckets.ready(i);
  }
  buckets.finish();
}

void expect_gradients(const GradientBuckets& buckets, const Model& model, std::size_t step,
                      std::span<const double> weights, double factor) {
  for (std::size_t parameter = 0; parameter < model.size(); ++parameter) {
    const Buffer view = buckets.gradient(parameter);
    const double exactness = view.type == DType::f64   ? 1e-14
                             : view.type == DType::f32 ? 1e-6
                             : view.type == DType::f16 ? 4e-3
                                                       : 4e-2;
    for (std::size_t i = 0; i < view.count; ++i) {
      double wanted = 0, most = 0;
      for (std::size_t rank = 0; rank < weights.size(); ++rank) {
        wanted += weights[rank] * model.value(step, static_cast<int>(rank), parameter, i) * factor;
        most += weights[rank] * factor;
      }
      const double is = element_of(view, i);
      expect(std::abs(is - wanted) <= exactness * most,
             "step " + std::to_string(step) + ": element " + std::to_string(i) + " of p" +
                 std::to_string(parameter) + " is " + std::to_string(is) + ", not " +
                 std::to_string(wanted));
    }
  }
}

void expect_means(const GradientBuckets& buckets, const Model& model, std::size_t step) {
  constexpr double ones[] = {1, 1, 1};
  expect_gradients(buckets, model, step, ones, 1.0 / 3);
}

std::string message_of(const std::function<void()>& function) {
  try {
    function();
  } catch (const Error& error) {
    return error.what();
  }
  return "no error";
}

std::string error_of(Errc code, const std::function<void()>& function) {
  try {
    function();
  } catch (const Error& error) {
    if (error.code() != code)
      throw std::runtime_error(std::string("another code: ") + error.code().message() + ": " +
                               error.what());
    return error.what();
  }
  return "no error";
}

void expect_contains(const std::string& text, std::string_view part) {
  expect(text.find(part) != std::string::npos,
         "'" + text + "' does not contain '" + std::string(part) + "'");
}

void expect_refused(const std::function<void()>& function, std::string_view part) {
  expect_contains(error_of(Errc::invalid_argument, function), part);
}

}  // namespace rondo::testing
