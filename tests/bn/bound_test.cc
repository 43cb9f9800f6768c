// SPDX-License-Identifier: Apache-2.0
//
// Parameters, statistics and gradients in memory of the caller, in each type; layers without bias.
#include <cmath>

#include "bn/places.h"

namespace rondo::testing {
namespace {

constexpr std::size_t bound_channels = 300;

// Numbers that every type has exactly.
Numbers exact_numbers(std::uint64_t seed, double middle) {
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

Step bound_step(Rank& rank, DType type) {
  return {rank, type, draw_batch(8, bound_channels, 2, 1), draw_batch(8, bound_channels, 2, 2),
          uneven(rank.number)};
}

// The types of what is bound.
struct Types {
  DType gamma, beta, mean, variance, dgamma, dbeta;
};
constexpr Types all_of(DType type) {
  return {type, type, type, type, type, type};
}

void check_bound(Rank& rank, DType type, const Types& of) {
  const std::string what = fmt::format("{} with parameters of {}, {}", name_of(type),
                                       name_of(of.gamma), name_of(of.beta));
  // At odd addresses.
  const auto row = [&](DType row_type, std::uint64_t seed, double middle) {
    return Row(rank, row_type, exact_numbers(seed, middle), rank.on ? 1 : 0);
  };
  Row gamma = row(of.gamma, 1, 1), beta = row(of.beta, 2, -1), mean = row(of.mean, 3, 0),
      variance = row(of.variance, 4, 2), dgamma = row(of.dgamma, 5, 0), dbeta = row(of.dbeta, 6, 0);
  // The results must be those of a layer that owns the same values.
  SyncBatchNorm owner = rank.layer(bound_channels, {.name = "owner", .type = type}),
                bound = rank.layer(bound_channels, {.name = "bound", .type = type});
  rank.assign(owner.buffers().gamma, gamma.values());
  rank.assign(owner.buffers().beta, beta.values());
  rank.assign(owner.buffers().running_mean, mean.values());
  rank.assign(owner.buffers().running_variance, variance.values());
  bound.bind_parameters(gamma.buffer(), beta.buffer());
  bound.bind_statistics(mean.buffer(), variance.buffer());
  Step wanted = bound_step(rank, type), got = bound_step(rank, type);
  Gradients exact_gradients(rank, bound_channels);
  wanted.forward(owner);
  wanted.backward(owner, exact_gradients.here());
  got.forward(bound);
  got.backward(bound, {dgamma.buffer(), dbeta.buffer()});
  expect(wanted.y.bytes() == got.y.bytes() && wanted.dx.bytes() == got.dx.bytes(), what);
  const auto compare = [&](Row& mine, const Buffer& owned, DType row_type, const char* name) {
    // The owner of f32 has rounded what a caller of f64 has not.
    const DType coarse = row_type == DType::f64 && type != DType::f64 ? DType::f32 : row_type;
    expect_rounded(mine.values(), rank.values(owned), coarse, what + name);
    return coarse == row_type;
  };
  bool exact = compare(mean, owner.buffers().running_mean, of.mean, ", mean");
  exact &= compare(variance, owner.buffers().running_variance, of.variance, ", variance");
  expect_rounded(dgamma.values(), exact_gradients.gamma.values(), of.dgamma, what + ", dgamma");
  expect_rounded(dbeta.values(), exact_gradients.beta.values(), of.dbeta, what + ", dbeta");
  // Evaluation reads there too.
  rank.assign(owner.buffers().running_mean, mean.values());
  rank.assign(owner.buffers().running_variance, variance.values());
  owner.evaluate(wanted.x.view(), wanted.y.view());
  bound.evaluate(got.x.view(), got.y.view());
  if (exact) expect(wanted.y.bytes() == got.y.bytes(), what + ", evaluation");
  const Numbers once = dgamma.values();
  got.forward(bound);
  got.backward(bound, {dgamma.buffer(), dbeta.buffer(), true});
  const Numbers twice = dgamma.values();
  // The second pass takes its sums about another point. On a GPU sums of 16-bit elements have
  // larger rounding errors.
  const double again = rank.on && size_of(type) == 2 ? 2e-5 : 2e-6;
  for (std::size_t i = 0; i < bound_channels; ++i) {
    const double apart = std::abs(twice[i] - 2 * once[i]);
    expect(apart <= 8 * rounding(of.dgamma) * std::abs(once[i]) + again,
           [&] { return fmt::format("{}, added: {} apart", what, apart); });
  }
}

TEST_CASE("parameters and statistics in memory of the caller in every type", "[places]") {
  run_on(each_place(), 3, "bound", [](Rank& rank) {
    constexpr DType types[] = {DType::f64, DType::f32, DType::f16, DType::bf16};
    constexpr DType a = DType::f64, b = DType::f32;
    for (const DType type : types) {
      for (const DType of : types) check_bound(rank, type, all_of(of));
      check_bound(rank, type, {a, b, a, b, b, a});
    }
  });
}

TEST_CASE("memory that is bound may change and move between passes", "[places]") {
  run_on(each_place(), 3, "moves", [](Rank& rank) {
    SyncBatchNorm layer = rank.layer(bound_channels, {.name = "bn"}),
                  wanted = rank.layer(bound_channels, {.name = "w"});
    Row one(rank, DType::bf16, exact_numbers(1, 1)), two(rank, DType::f16, exact_numbers(2, 1)),
        beta(rank, DType::f32, exact_numbers(3, 1));
    for (Row* gamma : {&one, &two}) {
      Step mine = bound_step(rank, DType::f32), right = bound_step(rank, DType::f32);
      layer.bind_parameters(gamma->buffer(), beta.buffer());
      rank.assign(wanted.buffers().gamma, gamma->values());
      rank.assign(wanted.buffers().beta, beta.values());
      mine.forward(layer);
      right.forward(wanted);
      expect(mine.y.bytes() == right.y.bytes(), "y");
      expect(layer.buffers().gamma.data == gamma->buffer().data &&
                 layer.buffers().gamma.type == gamma->buffer().type,
             "gamma()");
      beta.set(exact_numbers(4, 5));
    }
    expect(layer.parameters()[0].type == DType::f16 &&
               layer.parameters()[1].value == beta.buffer().data,
           "parameters()");
  });
}

TEST_CASE("a layer with gamma and without beta", "[places]") {
  run_on(each_place(), 3, "no bias", [](Rank& rank) {
    SyncBatchNorm both = rank.layer(bound_channels, {.name = "both", .type = DType::f64}),
                  one = rank.layer(bound_channels,
                                   {.name = "one", .type = DType::f64, .bias = false});
    Row gamma(rank, DType::f32, exact_numbers(1, 1)),
        gradient(rank, DType::f64, exact_numbers(2, 1));
    rank.assign(both.buffers().gamma, gamma.values());
    one.bind_parameters(gamma.buffer(), {});
    Step wanted = bound_step(rank, DType::f64), got = bound_step(rank, DType::f64);
    Gradients of_both(rank, bound_channels);
    wanted.forward(both);
    wanted.backward(both, of_both.here());
    got.forward(one);
    got.backward(one, {gradient.buffer(), {}});
    expect(wanted.y.bytes() == got.y.bytes() && wanted.dx.bytes() == got.dx.bytes(), "y, dx");
    expect(gradient.values() == of_both.gamma.values(), "dgamma");
    expect(one.buffers().beta.count == 0, "no beta");
    expect(one.parameters().size() == both.parameters().size() - 1, "parameters()");
  });
}

// As a binding does that counts batches itself, those without samples included.
TEST_CASE("the caller may count batches and change the momentum", "[places]") {
  run_on(each_place(), 3, "counted", [](Rank& rank) {
    SyncBatchNorm layer =
        rank.layer(1, {.name = "bn", .type = DType::f64, .momentum = std::nullopt});
    const auto forward = [&](const Numbers& values) {
      Placed x(rank, DType::f64, {2, 1, 1, values}, {0, 2});
      layer.forward(x.view(), x.view());
      rank.settle();
    };
    for (std::uint64_t batch = 1; batch <= 3; ++batch) {
      layer.set_batches(batch - 1);
      if (batch == 2)
        layer.forward({}, {});
      else
        forward({1, 3});
    }
    // 2 from the first batch, none from the second, a third of 2 from the third.
    expect_near(rank.values(layer.buffers().running_mean), {2.0}, 1e-15, "counted");
    expect(layer.batches() == 3, "batches");
    BatchNormOptions options = layer.options();
    options.momentum = 0.5;
    layer.set_options(options);
    forward({5, 7});
    expect_near(rank.values(layer.buffers().running_mean), {4.0}, 1e-15, "momentum");
    expect(layer.options().momentum == 0.5, "options()");
    // A count of batches that is set after a step without samples stays.
    options.momentum = std::nullopt;
    layer.set_options(options);
    layer.forward({}, {});
    layer.set_batches(0);
    forward({1, 3});
    expect(layer.batches() == 1, "the batches are not those that were set, and one more");
    expect_near(rank.values(layer.buffers().running_mean), {2.0}, 1e-15, "the first again");
  });
}

}  // namespace
}  // namespace rondo::testing
