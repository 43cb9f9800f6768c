// SPDX-License-Identifier: Apache-2.0
//
// Evaluation, averages, layers without optional parts, empty batches, groups, threads.
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
      const auto same = [&](Buffer BatchNormBuffers::*buffer, const std::string& what) {
        expect(rank.values(whole.buffers().*buffer) == rank.values(resumed->buffers().*buffer),
               what);
      };
      for (std::uint64_t step = 1; step <= 4; ++step) {
        Step share = mode_step(rank, step, 6, 5, type), other = mode_step(rank, step, 6, 5, type);
        Gradients one(rank, mode_channels), two(rank, mode_channels);
        share.forward(whole);
        share.backward(whole, one.here());
        if (resumed) {
          other.forward(*resumed);
          other.backward(*resumed, two.here());
          const std::string what = fmt::format("{} step {}", name_of(type), step);
          const BatchNormStatistics mine = whole.statistics(), others = resumed->statistics();
          expect(rank.values(mine.mean) == rank.values(others.mean), what + ", mean");
          expect(rank.values(mine.variance) == rank.values(others.variance), what + ", variance");
          same(&BatchNormBuffers::point, what + ", point");
          expect(one.are(two.gamma.values(), two.beta.values()), what + ", gradients");
          expect(share.y.bytes() == other.y.bytes() && share.dx.bytes() == other.dx.bytes(),
                 what + ", y, dx");
        }
        if (step == 2) {
          resumed.emplace(rank.layer(mode_channels, {.name = "resumed", .type = type}));
          restore(rank, *resumed, whole);
        }
      }
      same(&BatchNormBuffers::running_mean, "running mean");
      same(&BatchNormBuffers::running_variance, "running variance");
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
      const Numbers mean = rank.values(layer.buffers().running_mean),
                    variance = rank.values(layer.buffers().running_variance);
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
    SyncBatchNorm plain = rank.layer(mode_channels, {.name = "plain", .type = DType::f64}),
                  layer = rank.layer(mode_channels, {.name = "bn", .type = DType::f64});
    Step wanted = mode_step(rank, 1, 4), share = mode_step(rank, 1, 4),
         other = mode_step(rank, 2, 3);
    wanted.forward(plain);
    wanted.backward(plain);
    layer.begin_forward(share.x.view());
    layer.evaluate(other.x.view(), other.y.view());
    const BatchNormPass pass = layer.end_forward(share.y.view());
    layer.begin_backward(pass, share.x.view(), share.dy.view());
    layer.evaluate(other.x.view(), other.y.view());
    layer.end_backward(share.dx.view(), {});
    expect(share.y.bytes() == wanted.y.bytes() && share.dx.bytes() == wanted.dx.bytes(), "bits");
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
    expect(plain.buffers().gamma.count == 0 && plain.buffers().beta.count == 0, "empty");
    plain.bind_parameters({nullptr, 0, DType::f64}, {nullptr, 0, DType::f64});
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
    assign(layer.buffers().beta, all(0.5));
    // No rank has samples: nothing changes, and training continues.
    Gradients gradients(rank, mode_channels);
    for (int i = 0; i < 2; ++i) layer.backward(layer.forward({}, {}), {}, {}, {}, gradients.here());
    expect(layer.statistics().count == 0 && layer.batches() == 0 &&
               numbers(layer.buffers().running_variance) == all(1),
           "nothing");
    expect(gradients.are(all(0), all(0)), "gradients");
    // One sample on one rank is its own mean, so the output is beta. One element has no variance,
    // so the running variance stays.
    Numbers x = all(3.25), y = all(0), dx = all(7);
    const std::size_t samples = rank.number == 1 ? 1 : 0;
    const auto view = [&](Numbers& values) {
      return Activations{samples > 0 ? values.data() : nullptr, samples, 1};
    };
    const BatchNormPass pass = layer.forward(view(x), view(y));
    expect(layer.statistics().count == 1 && layer.batches() == 1, "one");
    if (rank.number == 1) expect_near(y, all(0.5), 1e-15, "beta");
    expect_near(numbers(layer.buffers().running_mean), all(0.325), 1e-15, "running mean");
    expect(numbers(layer.buffers().running_variance) == all(1), "running variance");
    layer.backward(pass, view(x), view(y), view(dx), gradients.here());
    if (rank.number == 1) expect_near(dx, all(0), 1e-12, "dx");
    expect(gradients.beta.values() == all(rank.number == 1 ? 0.5 : 0), "sum of dy");
    mode_step(rank, 3, 2).forward(layer);
    expect(layer.statistics().count == 3 * 2 * 5, "as ever");
  });
}

TEST_CASE("groups have statistics of their own") {
  run_on_processor(4, "groups", [](Communicator& c, int rank) {
    auto group = c.split(rank / 2, rank);
    SyncBatchNorm layer(*group, 1, {.name = "bn", .type = DType::f64});
    double x[2] = {static_cast<double>(rank), static_cast<double>(rank)}, y[2];
    layer.forward({x, 2, 1}, {y, 2, 1});
    expect(layer.statistics().count == 4 &&
               numbers(layer.statistics().mean)[0] == (rank < 2 ? 0.5 : 2.5) &&
               numbers(layer.statistics().variance)[0] == 0.25,
           "statistics");
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
      Gradients of_one(rank, mode_channels), of_many(rank, mode_channels);
      a.forward(one);
      a.backward(one, of_one.here());
      work.wait();
      many.begin_forward(b.x.view());
      b.pass = many.end_forward(b.y.view());
      many.begin_backward(b.pass, b.x.view(), b.dy.view());
      many.end_backward(b.dx.view(), of_many.here());
      d.forward(in_place);
      in_place.backward(d.pass, d.x.view(), d.dy.view(), d.dy.view(), {});
      layer_of(1).forward(d.x.view(), d.x.view());
      expect(a.y.bytes() == b.y.bytes() && a.dx.bytes() == b.dx.bytes(), "threads");
      expect(a.dx.bytes() == d.dy.bytes() && a.y.bytes() == d.x.bytes(), "in place");
      expect(of_one.are(of_many.gamma.values(), of_many.beta.values()), "gradients");
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
      Gradients gradients(rank, mode_channels);
      step.forward(layer);
      step.backward(layer, gradients.here());
      for (const Buffer& buffer :
           {layer.statistics().mean, layer.statistics().variance, layer.buffers().running_mean,
            layer.buffers().running_variance, layer.buffers().point})
        std::ranges::copy(rank.values(buffer), std::back_inserter(end));
      std::ranges::copy(gradients.sum(gradients.gamma), std::back_inserter(end));
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
