// SPDX-License-Identifier: Apache-2.0
//
// Parameters, statistics and gradients in memory of the caller, in each type; layers without bias.
#include <cmath>

#include "bn/reference.h"
#include "catch.h"

namespace rondo::testing {
namespace {

constexpr std::size_t bound_channels = 300, bound_spatial = 2, bound_total = 8;
constexpr int bound_size = 3;
constexpr std::size_t bound_samples[bound_size] = {5, 0, 3}, bound_first[bound_size] = {0, 5, 5};

Setup bound_ranks() {
  Setup setup;
  setup.size = bound_size;
  return setup;
}

// One number for each channel, in a type.
class BoundRow {
 public:
  BoundRow(DType type, const Numbers& values)
      : type_(type),
        tensor_(type, TensorLayout::nchw, Batch{1, values.size(), 1, values}, 0, 1),
        count_(values.size()) {}
  Buffer buffer() { return {tensor_.view().data, count_, type_}; }
  Numbers values() const {
    Batch batch{1, count_, 1, Numbers(count_)};
    tensor_.unpack(batch, 0);
    return batch.values;
  }

 private:
  DType type_;
  Tensor tensor_;
  std::size_t count_;
};

// Numbers that every type has exactly.
Numbers drawn(std::uint64_t seed, double middle) {
  Numbers values;
  for (std::size_t i = 0; i < bound_channels; ++i)
    values.push_back(middle + std::floor(32 * uniform(seed, i)) / 64);
  return values;
}

// How far a number that was rounded to a type may be from what it was.
double rounding(DType type) {
  switch (type) {
    case DType::f64:
      return 1e-15;
    case DType::f32:
      return 0x1p-24;
    case DType::f16:
      return 0x1p-11;
    default:
      return 0x1p-8;
  }
}

void expect_rounded(const Numbers& got, const Numbers& wanted, DType type,
                    const std::string& what) {
  for (std::size_t i = 0; i < wanted.size(); ++i) {
    // f16 is absolute below its smallest normal number.
    const double allowed = rounding(type) * std::max(std::abs(wanted[i]), 0x1p-14) * 1.0001;
    expect(std::abs(got[i] - wanted[i]) <= allowed,
           [&] { return fmt::format("{} {}: {}, not {}", what, i, got[i], wanted[i]); });
  }
}

struct BoundShare {
  BoundShare(int rank, DType type)
      : x(type, TensorLayout::nchw, draw_batch(bound_total, bound_channels, bound_spatial, 1),
          bound_first[rank], bound_samples[rank]),
        dy(type, TensorLayout::nchw, draw_batch(bound_total, bound_channels, bound_spatial, 2),
           bound_first[rank], bound_samples[rank]),
        y(x),
        dx(x) {}
  Tensor x, dy, y, dx;
};

// A layer of f64 or f32 that owns the same values says what is right.
TEST_CASE("parameters and statistics in memory of the caller in every type") {
  CHECK_NOTHROW(run_communicators(bound_ranks(), "bound", [](Communicator& c, int rank) {
    for (const DType type : {DType::f64, DType::f32, DType::f16, DType::bf16}) {
      for (const DType of : {DType::f64, DType::f32, DType::f16, DType::bf16}) {
        const std::string what =
            fmt::format("{} with parameters of {}", name_of(type), name_of(of));
        BoundRow gamma(of, drawn(1, 1)), beta(of, drawn(2, -1)), mean(of, drawn(3, 0)),
            variance(of, drawn(4, 2)), dgamma(of, drawn(5, 0)), dbeta(of, drawn(6, 0));
        SyncBatchNorm owner(c, bound_channels, {.name = "owner", .type = type}),
            bound(c, bound_channels, {.name = "bound", .type = type});
        assign(owner.gamma(), gamma.values());
        assign(owner.beta(), beta.values());
        assign(owner.running_mean(), mean.values());
        assign(owner.running_variance(), variance.values());
        bound.bind_parameters(gamma.buffer(), beta.buffer());
        bound.bind_statistics(mean.buffer(), variance.buffer());
        BoundShare wanted(rank, type), got(rank, type);
        owner.forward(wanted.x.view(), wanted.y.view());
        owner.backward(wanted.x.view(), wanted.dy.view(), wanted.dx.view());
        bound.forward(got.x.view(), got.y.view());
        const BatchNormPass pass = bound.take_pass();
        bound.backward(pass, got.x.view(), got.dy.view(), got.dx.view(),
                       {dgamma.buffer(), dbeta.buffer()});
        expect(wanted.y.bytes() == got.y.bytes() && wanted.dx.bytes() == got.dx.bytes(), what);
        // The owner of f32 has rounded what a caller of f64 has not.
        const DType coarse = of == DType::f64 && type != DType::f64 ? DType::f32 : of;
        expect_rounded(mean.values(), numbers(owner.running_mean()), coarse, what + ", mean");
        expect_rounded(variance.values(), numbers(owner.running_variance()), coarse,
                       what + ", variance");
        expect_rounded(dgamma.values(), numbers(owner.gamma_gradient()), coarse, what + ", dgamma");
        expect_rounded(dbeta.values(), numbers(owner.beta_gradient()), coarse, what + ", dbeta");
        // Evaluation reads there too, and gradients are added in the simple calls.
        assign(owner.running_mean(), mean.values());
        assign(owner.running_variance(), variance.values());
        owner.evaluate(wanted.x.view(), wanted.y.view());
        bound.evaluate(got.x.view(), got.y.view());
        if (coarse == of) expect(wanted.y.bytes() == got.y.bytes(), what + ", evaluation");
        bound.bind_gradients(dgamma.buffer(), dbeta.buffer());
        Numbers twice = dgamma.values();
        for (double& value : twice) value *= 2;
        bound.forward(got.x.view(), got.y.view());
        bound.backward(got.x.view(), got.dy.view(), got.dx.view());
        // The second pass takes its sums about another point.
        for (std::size_t i = 0; i < twice.size(); ++i)
          expect(std::abs(dgamma.values()[i] - twice[i]) <=
                     4 * rounding(of) * std::abs(twice[i]) + 2e-6,
                 what + ", added");
      }
    }
  }));
}

TEST_CASE("memory that is bound may change and move between passes") {
  CHECK_NOTHROW(run_communicators(bound_ranks(), "moves", [](Communicator& c, int rank) {
    SyncBatchNorm layer(c, bound_channels, {.name = "bn"}),
        wanted(c, bound_channels, {.name = "w"});
    BoundRow one(DType::bf16, drawn(1, 1)), two(DType::f16, drawn(2, 1)),
        beta(DType::f32, drawn(3, 1));
    for (BoundRow* gamma : {&one, &two}) {
      BoundShare mine(rank, DType::f32), right(rank, DType::f32);
      layer.bind_parameters(gamma->buffer(), beta.buffer());
      assign(wanted.gamma(), gamma->values());
      assign(wanted.beta(), beta.values());
      layer.forward(mine.x.view(), mine.y.view());
      wanted.forward(right.x.view(), right.y.view());
      expect(mine.y.bytes() == right.y.bytes(), "y");
      expect(
          layer.gamma().data == gamma->buffer().data && layer.gamma().type == gamma->buffer().type,
          "gamma()");
      assign(beta.buffer(), drawn(4, 5));
    }
    expect(layer.parameters()[0].type == DType::f16 &&
               layer.parameters()[1].value == beta.buffer().data,
           "parameters()");
  }));
}

TEST_CASE("a layer with gamma and without beta") {
  CHECK_NOTHROW(run_communicators(bound_ranks(), "no bias", [](Communicator& c, int rank) {
    SyncBatchNorm both(c, bound_channels, {.name = "both", .type = DType::f64}),
        one(c, bound_channels, {.name = "one", .type = DType::f64, .bias = false});
    BoundRow gamma(DType::f32, drawn(1, 1)), gradient(DType::f64, drawn(2, 1));
    assign(both.gamma(), gamma.values());
    one.bind_parameters(gamma.buffer(), {});
    BoundShare wanted(rank, DType::f64), got(rank, DType::f64);
    both.forward(wanted.x.view(), wanted.y.view());
    both.backward(wanted.x.view(), wanted.dy.view(), wanted.dx.view());
    one.forward(got.x.view(), got.y.view());
    const BatchNormPass pass = one.take_pass();
    one.backward(pass, got.x.view(), got.dy.view(), got.dx.view(), {gradient.buffer(), {}});
    expect(wanted.y.bytes() == got.y.bytes() && wanted.dx.bytes() == got.dx.bytes(), "y, dx");
    expect(gradient.values() == numbers(both.gamma_gradient()), "dgamma");
    expect(one.beta().count == 0 && one.beta_gradient().count == 0 &&
               one.beta_gradient_sum().empty() && one.gamma_gradient_sum().size() == bound_channels,
           "no beta");
    expect(one.parameters().size() == both.parameters().size() - 1, "parameters()");
    one.forward(got.x.view(), got.y.view());
    one.backward(got.x.view(), got.dy.view(), got.dx.view());
    const BatchNormPass frozen = one.evaluate_pass(got.x.view(), got.y.view());
    one.backward(frozen, got.x.view(), got.dy.view(), got.dx.view(), {gradient.buffer(), {}});
  }));
}

// As a binding does that counts batches itself, those without samples included.
TEST_CASE("the caller may count batches and change the momentum") {
  CHECK_NOTHROW(run_communicators(bound_ranks(), "counted", [](Communicator& c, int) {
    SyncBatchNorm layer(c, 1, {.name = "bn", .type = DType::f64, .momentum = std::nullopt});
    Numbers x{1, 3}, y = x;
    for (std::uint64_t batch = 1; batch <= 3; ++batch) {
      layer.set_batches(batch - 1);
      const std::size_t samples = batch == 2 ? 0 : 2;
      layer.forward({x.data(), samples, 1}, {y.data(), samples, 1});
    }
    // 2 from the first batch, none from the second, a third of 2 from the third.
    expect_near(numbers(layer.running_mean()), {2.0}, 1e-15, "counted");
    expect(layer.batches() == 3, "batches");
    layer.set_momentum(0.5);
    x = {5, 7};
    layer.forward({x.data(), 2, 1}, {y.data(), 2, 1});
    expect_near(numbers(layer.running_mean()), {4.0}, 1e-15, "momentum");
    expect(layer.options().momentum == 0.5, "options()");
  }));
}

}  // namespace
}  // namespace rondo::testing
