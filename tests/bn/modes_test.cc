// SPDX-License-Identifier: Apache-2.0
//
// Evaluation, averages, layers without optional parts, empty batches, groups, several layers at
// once, threads.
#include <deque>
#include <optional>

#include "bn/places.h"

namespace rondo::testing {
namespace {

constexpr std::size_t mode_channels = 6;

// A step with this rank's samples of a batch that is drawn for four ranks.
Step mode_step(Rank& rank, std::uint64_t seed, std::size_t samples, std::size_t spatial = 5,
               DType type = DType::f64) {
  return {rank,
          type,
          draw_batch(4 * samples, mode_channels, spatial, seed),
          draw_batch(4 * samples, mode_channels, spatial, seed + 1000),
          {static_cast<std::size_t>(rank.number) * samples, samples}};
}

TEST_CASE("running statistics: momentum, cumulative, and a checkpoint in between", "[places]") {
  run_on(each_place(), 2, "running", [](Rank& rank) {
    const auto layer_of = [&](std::optional<double> momentum) {
      return rank.layer(mode_channels, {.name = "bn", .type = DType::f64, .momentum = momentum});
    };
    SyncBatchNorm quarter = layer_of(0.25), cumulative = layer_of(std::nullopt);
    std::optional<SyncBatchNorm> resumed;
    Numbers mean(mode_channels), variance(mode_channels, 1.0), mean_sum(mode_channels),
        variance_sum(mode_channels);
    for (std::uint64_t step = 1; step <= 5; ++step) {
      const Step share = mode_step(rank, step, 3);
      share.forward(quarter);
      share.forward(cumulative);
      if (resumed) share.forward(*resumed);
      const Numbers now = rank.values(quarter.mean_buffer()),
                    biased = rank.values(quarter.variance_buffer());
      constexpr double n = 2 * 3 * 5;
      for (std::size_t i = 0; i < mode_channels; ++i) {
        const double unbiased = biased[i] * n / (n - 1);
        mean[i] = 0.75 * mean[i] + 0.25 * now[i];
        variance[i] = 0.75 * variance[i] + 0.25 * unbiased;
        mean_sum[i] += now[i] / 5;
        variance_sum[i] += unbiased / 5;
      }
      if (step == 2) {
        resumed.emplace(layer_of(std::nullopt));
        rank.assign(resumed->running_mean(), rank.values(cumulative.running_mean()));
        rank.assign(resumed->running_variance(), rank.values(cumulative.running_variance()));
        resumed->set_batches(cumulative.batches());
      }
    }
    const auto compare = [&](SyncBatchNorm& layer, const Numbers& means, const Numbers& variances,
                             const std::string& what) {
      expect_near(rank.values(layer.running_mean()), means, 1e-14, what + ", mean");
      expect_near(rank.values(layer.running_variance()), variances, 1e-14, what + ", variance");
    };
    compare(quarter, mean, variance, "momentum");
    compare(cumulative, mean_sum, variance_sum, "cumulative");
    compare(*resumed, mean_sum, variance_sum, "resumed");
    expect(resumed->batches() == 5 && cumulative.batches() == 5, "batches");
  });
}

// Copies what a checkpoint holds: parameters() and batches().
void restore(Rank& rank, SyncBatchNorm& to, SyncBatchNorm& from) {
  const std::vector<Parameter> have = from.parameters(), want = to.parameters();
  for (std::size_t i = 0; i < have.size(); ++i) {
    std::vector<std::byte> bytes(element_count(have[i]) * size_of(have[i].type));
    rank.read(bytes, have[i].value);
    rank.write(want[i].value, bytes);
  }
  to.set_batches(from.batches());
}

TEST_CASE("a run resumed from a checkpoint goes on with the same bits", "[places]") {
  const Place place = each_place();
  for (const DType type : {DType::f64, DType::f32, DType::f16, DType::bf16})
    run_on(place, 2, "resumed", [type](Rank& rank) {
      SyncBatchNorm whole = rank.layer(mode_channels, {.name = "whole", .type = type});
      std::optional<SyncBatchNorm> resumed;
      const auto same = [&](Buffer (SyncBatchNorm::*buffer)(), const std::string& what) {
        expect(rank.values((whole.*buffer)()) == rank.values(((*resumed).*buffer)()), what);
      };
      for (std::uint64_t step = 1; step <= 4; ++step) {
        Step share = mode_step(rank, step, 6, 5, type), other = mode_step(rank, step, 6, 5, type);
        share.forward(whole);
        share.backward(whole);
        if (resumed) {
          other.forward(*resumed);
          other.backward(*resumed);
          const std::string what = fmt::format("{} step {}", name_of(type), step);
          same(&SyncBatchNorm::mean_buffer, what + ", mean");
          same(&SyncBatchNorm::variance_buffer, what + ", variance");
          same(&SyncBatchNorm::gamma_gradient_sum_buffer, what + ", dgamma");
          expect(rank.values(whole.point()) == rank.values(resumed->point()), what + ", point");
          expect(share.y.bytes() == other.y.bytes() && share.dx.bytes() == other.dx.bytes(),
                 what + ", y, dx");
        }
        if (step == 2) {
          resumed.emplace(rank.layer(mode_channels, {.name = "resumed", .type = type}));
          restore(rank, *resumed, whole);
        }
      }
      expect(rank.values(whole.running_mean()) == rank.values(resumed->running_mean()),
             "running mean");
      expect(rank.values(whole.running_variance()) == rank.values(resumed->running_variance()),
             "running variance");
    });
}

TEST_CASE("evaluation uses running statistics and no communication", "[places]") {
  run_on(each_place(), 2, "evaluation", [](Rank& rank) {
    SyncBatchNorm layer = rank.layer(mode_channels, {.name = "bn", .type = DType::f64});
    const Step share = mode_step(rank, 1, 4);
    share.forward(layer);
    const std::uint64_t before = rank.c.statistics().operations;
    // Only one of the ranks evaluates.
    if (rank.number == 1) {
      const Batch x = draw_batch(2, mode_channels, 5, 9);
      Placed in(rank, DType::f64, x, {0, 2});
      layer.evaluate(in.view(), in.view());
      Numbers wanted;
      const Numbers mean = rank.values(layer.running_mean()),
                    variance = rank.values(layer.running_variance());
      for (std::size_t i = 0; i < x.size(); ++i) {
        const std::size_t channel = i / 5 % mode_channels;
        wanted.push_back((x.values[i] - mean[channel]) / std::sqrt(variance[channel] + 1e-5));
      }
      in.expect_near(wanted, 1e-14, "evaluation");
      layer.evaluate({}, {});
    }
    expect(rank.c.statistics().operations == before, "communication");
    expect(layer.batches() == 1, "batches");
    share.backward(layer);
    rank.settle();
  });
}

TEST_CASE("evaluation between the parts of a pass does not disturb it", "[places]") {
  run_on(each_place(), 2, "between", [](Rank& rank) {
    for (const bool tracks : {true, false}) {
      SyncBatchNorm plain = rank.layer(mode_channels, {.name = "plain", .type = DType::f64}),
                    layer = rank.layer(mode_channels,
                                       {.name = "bn", .type = DType::f64, .track_running = tracks});
      Step wanted = mode_step(rank, 1, 4), share = mode_step(rank, 1, 4),
           other = mode_step(rank, 2, 3);
      wanted.forward(plain);
      wanted.backward(plain);
      layer.begin_forward(share.x.view());
      layer.evaluate(other.x.view(), other.y.view());
      layer.end_forward(share.y.view());
      layer.begin_backward(share.x.view(), share.dy.view());
      layer.evaluate(other.x.view(), other.y.view());
      layer.end_backward(share.dx.view());
      expect(share.y.bytes() == wanted.y.bytes() && share.dx.bytes() == wanted.dx.bytes(), "bits");
    }
  });
}

TEST_CASE("without running statistics evaluation takes those of its own batch", "[places]") {
  run_on(each_place(), 2, "own batch", [](Rank& rank) {
    for (const auto& [type, tolerance] :
         {std::pair(DType::f64, 1e-12), std::pair(DType::f32, 1e-5)}) {
      SyncBatchNorm layer = rank.layer(mode_channels, {.type = type, .track_running = false});
      const auto seed = static_cast<std::uint64_t>(rank.number);
      const Batch x = stored(draw_batch(4, mode_channels, 5, 30 + seed), type),
                  dy = stored(draw_batch(4, mode_channels, 5, 40 + seed), type);
      const Reference wanted(x, dy, Numbers(mode_channels, 1.0), Numbers(mode_channels), 1e-5);
      Step step(rank, type, x, dy, {0, 4});
      for (int round = 0; round < 2; ++round) {
        const BatchNormPass pass = layer.evaluate_pass(step.x.view(), step.y.view());
        step.backward(layer, pass, {layer.gamma_gradient(), layer.beta_gradient()});
        step.y.expect_near(wanted.y, tolerance, "y");
        step.dx.expect_near(wanted.dx, tolerance, "dx");
        expect_near(rank.values(layer.gamma_gradient()), wanted.dgamma, tolerance / 10, "dgamma");
      }
      layer.evaluate(step.x.view(), step.x.view());
      step.x.expect_near(wanted.y, tolerance, "y in place");
    }
  });
}

TEST_CASE("a layer without gamma and beta", "[places]") {
  run_on(each_place(), 2, "not affine", [](Rank& rank) {
    SyncBatchNorm plain = rank.layer(mode_channels,
                                     {.name = "plain", .type = DType::f64, .affine = false}),
                  affine = rank.layer(mode_channels, {.name = "affine", .type = DType::f64});
    Step one = mode_step(rank, 1, 4), other = mode_step(rank, 1, 4);
    one.forward(plain);
    one.backward(plain);
    other.forward(affine);
    other.backward(affine);
    expect(one.y.bytes() == other.y.bytes() && one.dx.bytes() == other.dx.bytes(),
           "as with 1 and 0");
    expect(plain.gamma().count == 0 && plain.beta_gradient().count == 0 &&
               plain.gamma_gradient_sum_buffer().count == 0 && plain.gamma_gradient_sum().empty(),
           "empty");
    plain.bind_gradients({nullptr, 0, DType::f64}, {nullptr, 0, DType::f64});
    const auto check = [&](SyncBatchNorm& layer, const std::string& names) {
      std::string all;
      for (const Parameter& parameter : layer.parameters()) {
        expect(parameter.device == rank.device(), "a parameter is elsewhere");
        all += parameter.name + " ";
      }
      expect(all == names, all);
    };
    check(plain, "plain.running_mean plain.running_var plain.point ");
    check(affine, "affine.weight affine.bias affine.running_mean affine.running_var affine.point ");
  });
}

TEST_CASE("batches of nothing and of one") {
  run_on(Place::processor, 3, "few", [](Rank& rank) {
    SyncBatchNorm layer = rank.layer(mode_channels, {.name = "bn", .type = DType::f64});
    const auto all = [](double value) { return Numbers(mode_channels, value); };
    assign(layer.beta(), all(0.5));
    // No rank has samples: nothing changes, and training continues.
    for (int i = 0; i < 2; ++i) {
      layer.forward({}, {});
      layer.backward({}, {}, {});
    }
    expect(
        layer.count() == 0 && layer.batches() == 0 && numbers(layer.running_variance()) == all(1),
        "nothing");
    expect(numbers(layer.beta_gradient()) == all(0) && layer.beta_gradient_sum()[0] == 0,
           "gradients");
    // One sample on one rank is its own mean, so the output is beta. One element has no variance,
    // so the running variance stays.
    Numbers x = all(3.25), y = all(0), dx = all(7);
    const std::size_t samples = rank.number == 1 ? 1 : 0;
    const auto view = [&](Numbers& values) {
      return Activations{samples > 0 ? values.data() : nullptr, samples, 1};
    };
    layer.forward(view(x), view(y));
    expect(layer.count() == 1 && layer.batches() == 1, "one");
    if (rank.number == 1) expect_near(y, all(0.5), 1e-15, "beta");
    expect_near(numbers(layer.running_mean()), all(0.325), 1e-15, "running mean");
    expect(numbers(layer.running_variance()) == all(1), "running variance");
    layer.backward(view(x), view(y), view(dx));
    if (rank.number == 1) expect_near(dx, all(0), 1e-12, "dx");
    // Ranks without samples have the same sums.
    expect(layer.beta_gradient_sum()[2] == 0.5, "sum of dy");
    mode_step(rank, 3, 2).forward(layer);
    expect(layer.count() == 3 * 2 * 5, "as ever");
  });
}

TEST_CASE("groups have statistics of their own") {
  run_on_processor(4, "groups", [](Communicator& c, int rank) {
    auto group = c.split(rank / 2, rank);
    SyncBatchNorm layer(*group, 1, {.name = "bn", .type = DType::f64});
    double x[2] = {static_cast<double>(rank), static_cast<double>(rank)}, y[2];
    layer.forward({x, 2, 1}, {y, 2, 1});
    expect(layer.count() == 4 && layer.mean()[0] == (rank < 2 ? 0.5 : 2.5) &&
               layer.variance()[0] == 0.25,
           "statistics");
  });
}

TEST_CASE("several layers in one call give what each alone gives, in one collective", "[places]") {
  run_on(each_place(), 3, "together", [](Rank& rank) {
    constexpr std::size_t count = 3;
    std::vector<SyncBatchNorm> alone, together;
    std::vector<SyncBatchNorm*> list;
    for (std::size_t i = 0; i < count; ++i) {
      const BatchNormOptions options{.name = fmt::format("bn{}", i), .type = DType::f64};
      alone.push_back(rank.layer(mode_channels, options));
      together.push_back(rank.layer(mode_channels, options));
    }
    for (SyncBatchNorm& layer : together) list.push_back(&layer);
    for (std::uint64_t step = 0; step < 3; ++step) {
      std::deque<Step> one, all;
      std::vector<Activations> xs, ys, dys, dxs;
      for (std::size_t i = 0; i < count; ++i) {
        one.push_back(mode_step(rank, 10 * step + i, i + 1));
        all.push_back(mode_step(rank, 10 * step + i, i + 1));
        one[i].forward(alone[i]);
        one[i].backward(alone[i]);
        xs.push_back(all[i].x.view());
        ys.push_back(all[i].y.view());
        dys.push_back(all[i].dy.view());
        dxs.push_back(all[i].dx.view());
      }
      const std::uint64_t before = rank.c.statistics().operations;
      SyncBatchNorm::begin_forward(list, xs);
      SyncBatchNorm::end_forward(list, ys);
      SyncBatchNorm::begin_backward(list, xs, dys);
      SyncBatchNorm::end_backward(list, dxs);
      expect(rank.c.statistics().operations - before == 2, "collectives");
      for (std::size_t i = 0; i < count; ++i) {
        expect(all[i].y.bytes() == one[i].y.bytes(), "y");
        expect(all[i].dx.bytes() == one[i].dx.bytes(), "dx");
        expect(rank.values(together[i].gamma_gradient()) == rank.values(alone[i].gamma_gradient()),
               "dgamma");
      }
    }
  });
}

TEST_CASE("the bits do not depend on threads, on memory in place, or on what else is under way") {
  run_on(Place::processor, 2, "bits", [](Rank& rank) {
    // Large enough for several tasks.
    const auto seed = static_cast<std::uint64_t>(rank.number);
    const Batch x = draw_batch(2, mode_channels, 60'001, seed),
                dy = draw_batch(2, mode_channels, 60'001, 10 + seed);
    for (const TensorLayout layout : {TensorLayout::nchw, TensorLayout::nhwc}) {
      const auto layer_of = [&](int threads) {
        return rank.layer(mode_channels, {.name = "bn", .layout = layout, .threads = threads});
      };
      SyncBatchNorm one = layer_of(1), many = layer_of(5), in_place = layer_of(2);
      const auto step = [&] { return Step(rank, DType::f32, x, dy, {0, 2}, layout); };
      Step a = step(), b = step(), d = step();
      std::vector<float> bucket(100'000, 1.0F);
      Work work = rank.c.all_reduce(buffer_of(std::span(bucket)), buffer_of(std::span(bucket)),
                                    ReduceOp::sum);
      a.forward(one);
      a.backward(one);
      work.wait();
      many.begin_forward(b.x.view());
      many.end_forward(b.y.view());
      many.begin_backward(b.x.view(), b.dy.view());
      many.end_backward(b.dx.view());
      d.forward(in_place);
      in_place.backward(d.x.view(), d.dy.view(), d.dy.view());
      layer_of(1).forward(d.x.view(), d.x.view());
      expect(a.y.bytes() == b.y.bytes() && a.dx.bytes() == b.dx.bytes(), "threads");
      expect(a.dx.bytes() == d.dy.bytes() && a.y.bytes() == d.x.bytes(), "in place");
      expect(numbers(one.gamma_gradient()) == numbers(many.gamma_gradient()), "gradients");
    }
  });
}

// Returns the bits of rank 0 after three steps of three ranks, which all must have the same.
Numbers bits_of(Place place, Over over, const std::string& algorithm, bool reproducible) {
  Setup setup = ranks(3, over);
  setup.options.reproducible = reproducible;
  setup.options.algorithm = algorithm;
  std::vector<Numbers> ends(3);
  run_on(place, setup, "same bits", [&](Rank& rank) {
    SyncBatchNorm layer = rank.layer(mode_channels, {.name = "bn", .type = DType::f64});
    Numbers& end = ends[static_cast<std::size_t>(rank.number)];
    for (std::uint64_t number = 0; number < 3; ++number) {
      const Step step = mode_step(rank, number, 3);
      step.forward(layer);
      step.backward(layer);
      for (const Buffer& buffer :
           {layer.mean_buffer(), layer.variance_buffer(), layer.gamma_gradient_sum_buffer(),
            layer.running_mean(), layer.running_variance(), layer.point()})
        std::ranges::copy(rank.values(buffer), std::back_inserter(end));
    }
  });
  CHECK((!ends[0].empty() && ends[1] == ends[0] && ends[2] == ends[0]));
  return ends[0];
}

TEST_CASE("ranks end with the same bits; reproducible ones over every transport and algorithm",
          "[places]") {
  const Place place = each_place();
  const Numbers wanted = bits_of(place, Over::mem, "", true);
  for (const Over over : {Over::mem, Over::tcp, Over::shm}) {
    for (const char* algorithm : {"", "star", "chain"}) {
      INFO(name_of(over) << ' ' << algorithm);
      CHECK((bits_of(place, over, algorithm, true) == wanted));
    }
    CHECK(difference(bits_of(place, over, "", false), wanted) < 1e-12);
  }
  // Without `reproducible`, two runs still have the same bits.
  CHECK((bits_of(place, Over::mem, "", false) == bits_of(place, Over::mem, "", false)));
}

}  // namespace
}  // namespace rondo::testing
