// SPDX-License-Identifier: Apache-2.0
//
// Ranks with parts of a batch get the results of one process with the whole batch: forward, dx,
// dgamma, dbeta, running statistics and evaluation.
#include <numeric>

#include "bn/places.h"
#include "support/effort.h"

namespace rondo::testing {
namespace {

using Split = std::vector<std::size_t>;  // samples by rank

struct Plan {
  Place place;
  std::size_t channels, spatial;
  std::vector<Split> steps;
  BatchNormOptions options;
  Over over = Over::mem;
};

// The allowed differences for a type: of f64 sums, of values stored as parameters, and of
// activations, which are rounded once.
struct Tolerance {
  double sums, parameters, activations;
};
Tolerance tolerance_of(DType type) {
  switch (type) {
    case DType::f64:
      return {1e-12, 1e-12, 1e-12};
    case DType::f32:
      return {1e-12, 1e-6, 1e-5};
    case DType::f16:
      return {1e-6, 1e-6, 0x1p-11 * 1.01};
    default:
      return {1e-6, 1e-6, 0x1p-8 * 1.01};
  }
}

std::string describe(const Plan& plan) {
  std::string text = fmt::format("{} {} {} {} channels, {} positions, split", name_of(plan.over),
                                 plan.options.layout == TensorLayout::nchw ? "nchw" : "nhwc",
                                 name_of(plan.options.type), plan.channels, plan.spatial);
  for (const std::size_t samples : plan.steps[0]) text += fmt::format(" {}", samples);
  return text;
}

// The results that one process has after each step.
class Process {
 public:
  Process(const BatchNormOptions& options, std::size_t channels)
      : running_mean(channels),
        mean_scale(channels),
        running_variance(channels, 1.0),
        options_(options) {
    for (std::size_t c = 0; c < channels; ++c) {
      gamma.push_back(options.affine ? 0.5 + 0.125 * static_cast<double>(c % 7) : 1);
      beta.push_back(options.affine && options.bias ? 0.25 * static_cast<double>(c % 5) - 0.5 : 0);
    }
  }
  void step(const Batch& x, const Batch& dy) {
    const Reference& now = reference.emplace(x, dy, gamma, beta, options_.epsilon);
    const auto n = static_cast<double>(x.samples * x.spatial);
    ++batches;
    const double part = options_.momentum.value_or(1 / static_cast<double>(batches));
    evaluated = x.values;
    for (std::size_t c = 0; c < gamma.size(); ++c) {
      mean_scale[c] += part * now.deviation[c];
      running_mean[c] += part * (now.mean[c] - running_mean[c]);
      running_variance[c] += part * (now.variance[c] * n / (n - 1) - running_variance[c]);
    }
    for (std::size_t i = 0; i < x.size(); ++i) {
      const std::size_t c = i / x.spatial % gamma.size();
      const double deviation = std::sqrt(running_variance[c] + options_.epsilon);
      evaluated[i] = (x.values[i] - running_mean[c]) / deviation * gamma[c] + beta[c];
    }
  }
  Numbers gamma, beta, running_mean, mean_scale, running_variance, evaluated;
  std::optional<Reference> reference;  // of the last step in which there were samples
  std::uint64_t batches = 0;

 private:
  BatchNormOptions options_;
};

// Compares one number for each channel, by the scale of that channel.
void expect_each(const Numbers& got, const Numbers& wanted, const Numbers& scales, double tolerance,
                 const std::string& what) {
  const double apart = difference_of_scales(got, wanted, scales);
  expect(apart <= tolerance,
         fmt::format("{}: {} apart in a channel, {} allowed", what, apart, tolerance));
}

void check_step(Rank& rank, SyncBatchNorm& layer, const Plan& plan, const Process& process,
                const Batch& x, const Batch& dy, Share share) {
  const Tolerance allowed = tolerance_of(plan.options.type);
  Step step(rank, plan.options.type, x, dy, share, plan.options.layout);
  step.forward(layer);
  if (!rank.on) expect(layer.statistics().count == x.samples * x.spatial, "count");
  const Reference& wanted = *process.reference;
  const Numbers mean = rank.values(layer.statistics().mean);
  expect_each(mean, wanted.mean, wanted.deviation, allowed.sums, "mean");
  expect_each(rank.values(layer.statistics().variance), wanted.variance, wanted.variance,
              allowed.sums, "variance");
  expect(rank.values(layer.buffers().point) == mean, "point");
  const Numbers none(plan.channels);
  const bool some = x.samples > 0, has_gamma = plan.options.affine,
             has_beta = has_gamma && plan.options.bias;
  Gradients gradients(rank, plan.channels);
  step.backward(layer, {has_gamma ? gradients.gamma.buffer() : Buffer{},
                        has_beta ? gradients.beta.buffer() : Buffer{}});
  if (has_gamma)
    expect_each(gradients.sum(gradients.gamma), some ? wanted.dgamma : none, wanted.dgamma_scale,
                allowed.sums, "dgamma");
  if (has_beta)
    expect_each(gradients.sum(gradients.beta), some ? wanted.dbeta : none, wanted.dbeta_scale,
                allowed.sums, "dbeta");
  if (some) {
    step.y.expect_near(wanted.y, allowed.activations, "y");
    step.dx.expect_near(wanted.dx, allowed.activations, "dx");
  }
  layer.evaluate(step.x.view(), step.y.view());
  if (some) step.y.expect_near(process.evaluated, 2 * allowed.activations, "evaluated y");
}

// Compares the ranks with one process, step by step. Their parts of the batch follow each other.
void check_equal(const Plan& plan) {
  const std::string what = describe(plan);
  INFO(what);
  const auto total = [](const Split& split) {
    return std::accumulate(split.begin(), split.end(), std::size_t{0});
  };
  std::vector<Batch> xs, dys;
  std::vector<Process> processes;
  Process process(plan.options, plan.channels);
  for (std::uint64_t k = 0; k < plan.steps.size(); ++k) {
    const auto draw = [&](std::uint64_t seed) {
      return stored(draw_batch(total(plan.steps[k]), plan.channels, plan.spatial, seed),
                    plan.options.type);
    };
    xs.push_back(draw(10 + k));
    dys.push_back(draw(20 + k));
    if (xs[k].samples > 0) process.step(xs[k], dys[k]);
    processes.push_back(process);
  }
  const auto size = static_cast<int>(plan.steps[0].size());
  const Tolerance allowed = tolerance_of(plan.options.type);
  run_on(plan.place, ranks(size, plan.over), what, [&](Rank& rank) {
    SyncBatchNorm layer = rank.layer(plan.channels, plan.options);
    for (const auto& [buffer, values] : {std::pair(layer.buffers().gamma, process.gamma),
                                         std::pair(layer.buffers().beta, process.beta)})
      if (buffer.count > 0) rank.assign(buffer, values);
    for (std::size_t k = 0; k < plan.steps.size(); ++k) {
      const Split& split = plan.steps[k];
      const Share share{std::accumulate(split.begin(), split.begin() + rank.number, std::size_t{0}),
                        split[static_cast<std::size_t>(rank.number)]};
      check_step(rank, layer, plan, processes[k], xs[k], dys[k], share);
    }
    expect(layer.batches() == process.batches, "batches");
    // All ranks must have the same bits.
    const Numbers mean = rank.values(layer.buffers().running_mean),
                  variance = rank.values(layer.buffers().running_variance);
    for (Numbers got : {mean, variance}) {
      const Numbers mine = got;
      rank.c.broadcast(buffer_of(std::span(got)), buffer_of(std::span(got)), 0).wait();
      expect(got == mine, "running statistics of rank 0");
    }
    expect_each(mean, process.running_mean, process.mean_scale, allowed.parameters, "running mean");
    expect_each(variance, process.running_variance, process.running_variance, allowed.parameters,
                "running variance");
  });
}

std::vector<Split> three_steps(const Split& split) {
  return {split, split, split};
}

// The percentage of the plans that a run has.
int share_of_plans() {
  return whole_set() ? 100 : few_cases() ? 5 : 20;
}

TEST_CASE("ranks with parts of a batch get what one process gets with all of it", "[places]") {
  struct Shape {
    std::size_t channels, spatial;
    Split split;
  };
  std::vector<Shape> shapes{
      {5, 1, {4, 4}}, {5, 48, {4, 4}}, {19, 67, {5, 3, 8, 0}}, {64, 9, {5, 3, 8, 0}}};
  for (const Split& split : std::vector<Split>{
           {16}, {8, 8}, {7, 1, 8}, {5, 3, 8, 0}, {4, 4, 4, 4}, {0, 1, 2, 3, 4, 5, 0, 1}}) {
    shapes.push_back({5, 7, split});
    shapes.push_back({37, 1, split});
  }
  const Place place = each_place();
  std::uint64_t number = 0;
  for (const TensorLayout layout : {TensorLayout::nchw, TensorLayout::nhwc})
    for (const DType type : {DType::f64, DType::f32, DType::f16, DType::bf16})
      for (const auto& [channels, spatial, split] : shapes)
        if (drawn(number++, share_of_plans()))
          check_equal(
              {place, channels, spatial, three_steps(split), {.type = type, .layout = layout}});
}

TEST_CASE("the results of one process over every transport", "[places]") {
  const Place place = each_place();
  for (const Over over : {Over::mem, Over::tcp, Over::shm})
    for (const std::size_t size : {1, 3})
      check_equal({place, 5, 9, three_steps(Split(size, 4)), {}, over});
}

// In the third step no rank has a sample.
TEST_CASE("the results of one process with uneven steps, options and averages", "[places]") {
  const Place place = each_place();
  for (const DType type : {DType::f64, DType::f32, DType::bf16})
    for (int choice = 0; choice < 4; ++choice) {
      BatchNormOptions options{.type = type, .affine = choice != 1, .bias = choice != 2};
      options.layout = choice % 2 == 0 ? TensorLayout::nhwc : TensorLayout::nchw;
      if (choice == 3) options.momentum = std::nullopt;
      check_equal({place, 21, 3, {{5, 0, 3}, {1, 6, 2}, {0, 0, 0}, {0, 0, 4}, {3, 3, 3}}, options});
    }
}

}  // namespace
}  // namespace rondo::testing
