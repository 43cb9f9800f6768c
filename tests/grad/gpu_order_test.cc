// SPDX-License-Identifier: Apache-2.0
//
// The order between the streams of a program, the kernels of gradient buckets and the copies of the
// communicator. Each case is wrong as soon as one wait is missing: streams are held, so that what
// must come later would come first.
#include <cmath>
#include <cstring>
#include <thread>

#include "catch.h"
#include "grad/gpu.h"

namespace rondo::testing {
namespace {

using namespace std::chrono_literals;

constexpr std::size_t count = 20'000, bytes = count * sizeof(float);

// Lets a stream go after a while, on a thread of its own.
class LaterGo {
 public:
  LaterGo(const FakeCuda& fake, const device::Stream& stream, std::chrono::milliseconds time)
      : thread_([&fake, handle = stream.get(), time] {
          std::this_thread::sleep_for(time);
          fake.let_go(handle);
        }) {}
  ~LaterGo() { thread_.join(); }

 private:
  std::thread thread_;
};

// A rank with buckets of a few parameters of equal size, and two streams.
class Rank {
 public:
  Rank(Communicator& c, OnGpu& on, std::size_t parameters, GradientOptions options = {})
      : on(on),
        a(on.gpu()),
        b(on.gpu()),
        source(on, count, 0),
        in(on, bytes),
        out(on, bytes),
        buckets(c, parameters_of(std::vector<Tensor>(parameters, {count}), on.gpu().ordinal()),
                rebuilt_never(std::move(options))) {}

  device::Address view(std::size_t parameter) const {
    return address_of(buckets.gradient(parameter));
  }
  const void* source_data() const { return source.buffer().data; }
  // Enqueues that the memory becomes this value.
  void set(device::Address to, float value, const device::Stream& stream) {
    std::fill_n(reinterpret_cast<float*>(in.data()), count, value);
    in.to_gpu(to, bytes, stream);
  }
  // Enqueues a read into `out`.
  void read(device::Address from, const device::Stream& stream) {
    std::memset(out.data(), 0xff, bytes);
    out.to_host(from, bytes, stream);
  }
  bool has_read(float value) const {
    const auto* values = reinterpret_cast<const float*>(out.data());
    return std::all_of(values, values + count, [=](float v) { return v == value; });
  }
  // Reads at once, beside all streams.
  bool is(device::Address from, float value) {
    std::vector<float> values(count);
    on.copier.read(std::as_writable_bytes(std::span(values)), from);
    return std::ranges::all_of(values, [=](float v) { return v == value; });
  }
  // A step that ends on stream a with this value in the view of each parameter.
  void whole_step(float value) {
    buckets.begin_step({.stream = a.get()});
    for (std::size_t i = 0; i < buckets.parameter_count(); ++i) {
      set(view(i), value, a);
      settle(on, a);
      buckets.ready(i, OnStream{a.get()});
    }
    buckets.finish(OnStream{a.get()});
  }

  OnGpu& on;
  device::Stream a, b;
  GpuFloats source;
  PinnedBytes in, out;
  GradientBuckets buckets;

 private:
  static GradientOptions rebuilt_never(GradientOptions options) {
    options.rebuild = false;
    return options;
  }
};

auto wires() {
  return Catch::Generators::values<std::optional<DType>>({std::nullopt, DType::bf16, DType::f16});
}

void run_ordered(std::string_view what,
                 const std::function<void(Communicator&, OnGpu&, const FakeCuda&)>& function) {
  if (FakeCuda::missing()) return;
  const FakeCuda fake;
  CHECK_NOTHROW(
      run_on_gpus(gpu_setup(), what, [&](Communicator& c, OnGpu& on) { function(c, on, fake); }));
}

TEST_CASE("a bucket on a GPU comes after the streams of its gradients", "[gpu]") {
  const bool copies = GENERATE(false, true);
  const std::optional<DType> wire = GENERATE(wires());
  run_ordered("ready", [&](Communicator& c, OnGpu& on, const FakeCuda& fake) {
    Rank rank(c, on, 2, {.wire = wire});
    for (int step = 0; step < 2; ++step) {
      const float mine = static_cast<float>(1 + c.rank() + 2 * step);
      const device::Stream& late = step == 0 ? rank.a : rank.b;
      const device::Stream& early = step == 0 ? rank.b : rank.a;
      const std::uint64_t before = c.statistics().operations;
      rank.buckets.begin_step({.stream = early.get()});
      fake.hold(late.get());
      rank.set(copies ? rank.source.address() : rank.view(1), mine, late);
      if (copies)
        rank.buckets.ready(1, rank.source_data(), OnStream{late.get()});
      else
        rank.buckets.ready(1, OnStream{late.get()});
      rank.buckets.ready(0, OnStream{early.get()});
      const LaterGo go(fake, late, 20ms);
      rank.buckets.finish(OnStream{early.get()});
      rank.read(rank.view(1), early);
      settle(on, early);
      expect(rank.has_read(1.5F + 2 * static_cast<float>(step)), "the bucket came too early");
      expect(c.statistics().operations - before == 2, "the header and the bucket");
    }
  });
}

// The program still reads a gradient of the step before, for which nobody calls ready() now.
TEST_CASE("unused gradients on a GPU are overwritten after the step's streams", "[gpu]") {
  const bool find = GENERATE(false, true);
  run_ordered("unused", [&](Communicator& c, OnGpu& on, const FakeCuda& fake) {
    Rank rank(c, on, 2, {.find_unused = find});
    rank.whole_step(3);
    settle(on, rank.a);
    const std::size_t unused[] = {1};
    StepOptions step{.stream = find ? rank.b.get() : rank.a.get()};
    if (!find && c.rank() == 0) step.unused = unused;
    fake.hold(rank.a.get());
    if (!find) rank.read(rank.view(1), rank.a);
    rank.buckets.begin_step(step);
    if (find && c.rank() == 0) rank.read(rank.view(1), rank.a);
    rank.buckets.ready(0, OnStream{rank.b.get()});
    if (c.rank() == 1) rank.buckets.ready(1, OnStream{rank.b.get()});
    const LaterGo go(fake, rank.a, 20ms);
    rank.buckets.finish(OnStream{rank.a.get()});
    settle(on, rank.a);
    if (!find || c.rank() == 0)
      expect(rank.has_read(3), "a gradient was overwritten while the program read it");
    expect(rank.is(rank.view(1), 1.5F), "wrong average");
  });
}

// An optimizer on the stream of begin_step() still reads what the step before has left.
TEST_CASE("gradients that are given are copied after the stream of begin_step()", "[gpu]") {
  run_ordered("given", [&](Communicator& c, OnGpu& on, const FakeCuda& fake) {
    Rank rank(c, on, 1);
    rank.whole_step(3);
    settle(on, rank.a);
    fake.hold(rank.a.get());
    rank.read(rank.view(0), rank.a);
    rank.buckets.begin_step({.stream = rank.a.get()});
    rank.buckets.ready(0, rank.source_data(), OnStream{rank.b.get()});
    // The fake draws whose turn it is, so a copy that may run does so among these.
    const device::Stream other(on.gpu());
    const PinnedBytes spare(on, 4);
    for (int i = 0; i < 100; ++i) spare.to_host(address_of(rank.source.buffer()), 4, other);
    settle(on, other);
    fake.let_go(rank.a.get());
    rank.buckets.finish(OnStream{rank.a.get()});
    settle(on, rank.a);
    expect(rank.has_read(3), "the copy came before what the stream had to read");
  });
}

TEST_CASE("what comes behind finish() with a stream finds the gradients", "[gpu]") {
  const std::optional<DType> wire = GENERATE(wires());
  run_ordered("finish", [&](Communicator& c, OnGpu& on, const FakeCuda&) {
    Rank rank(c, on, 8, {.wire = wire});
    for (int round = 0; round < 6; ++round) {
      rank.buckets.begin_step({.stream = rank.a.get()});
      for (std::size_t i = 8; i-- > 0;) {
        rank.set(rank.view(i), static_cast<float>(2 * c.rank() + round), rank.a);
        settle(on, rank.a);
        rank.buckets.ready(i, OnStream{rank.a.get()});
      }
      rank.buckets.finish(OnStream{rank.b.get()});
      rank.read(rank.view(0), rank.b);
      settle(on, rank.b);
      expect(rank.has_read(1.0F + static_cast<float>(round)), "it read too early");
    }
  });
}

TEST_CASE("on_bucket comes when gradients are final for the stream, or for the host", "[gpu]") {
  const bool on_stream = GENERATE(false, true);
  const DType wire = GENERATE(DType::bf16, DType::f16);
  run_ordered("on_bucket", [&](Communicator& c, OnGpu& on, const FakeCuda&) {
    std::optional<Rank> rank;
    std::size_t called = 0;
    GradientOptions options;
    options.wire = wire;
    options.first_bucket_bytes = options.bucket_bytes = bytes;
    options.on_bucket = [&](const CompletedBucket& bucket) {
      for (const std::size_t parameter : bucket.parameters) {
        ++called;
        if (on_stream) {
          rank->read(rank->view(parameter), rank->a);
          settle(on, rank->a);
          expect(rank->has_read(2), "the stream read too early");
        } else {
          expect(rank->is(rank->view(parameter), 2), "the host read too early");
        }
      }
    };
    rank.emplace(c, on, 3, options);
    for (std::size_t round = 1; round <= 4; ++round) {
      rank->buckets.begin_step({.stream = rank->a.get()});
      for (std::size_t i = 3; i-- > 0;) {
        rank->set(rank->view(i), static_cast<float>(1 + 2 * c.rank()), rank->a);
        settle(on, rank->a);
        rank->buckets.ready(i, OnStream{rank->a.get()});
      }
      if (on_stream)
        rank->buckets.finish(OnStream{rank->a.get()});
      else
        rank->buckets.finish();
      expect(called == 3 * round, "calls are missing");
    }
  });
}

// The host reads at once, without a stream of the program.
TEST_CASE("finish() waits for the gradients of a GPU", "[gpu]") {
  run_ordered("host", [&](Communicator& c, OnGpu& on, const FakeCuda& fake) {
    Rank rank(c, on, 1, {.wire = DType::bf16});
    for (int round = 0; round < 20; ++round) {
      rank.buckets.begin_step();
      rank.set(rank.view(0), static_cast<float>(2 * c.rank() + round), rank.a);
      rank.buckets.ready(0, OnStream{rank.a.get()});
      rank.buckets.finish();
      float value = 0;
      fake.read(&value, rank.view(0) + bytes - sizeof value, sizeof value);
      expect(value == 1.0F + static_cast<float>(round), "the host read too early");
    }
  });
}

TEST_CASE("norm() waits for the GPU", "[gpu]") {
  const std::optional<DType> wire = GENERATE(wires());
  run_ordered("norm", [&](Communicator& c, OnGpu& on, const FakeCuda&) {
    Rank rank(c, on, 3, {.wire = wire});
    for (int round = 0; round < 20; ++round) {
      const auto value = static_cast<float>(1 + round % 3);
      rank.whole_step(value);
      const double squares = static_cast<double>(value * value) * count;
      expect(rank.buckets.norm(OnStream{rank.b.get()}) == std::sqrt(3 * squares),
             "it came too early");
    }
  });
}

// begin_step() looks whether gradients of the step before have overflowed, if the host knows.
TEST_CASE("begin_step() of f16 does not wait for streams", "[gpu]") {
  run_ordered("begin", [&](Communicator& c, OnGpu& on, const FakeCuda& fake) {
    Rank rank(c, on, 2, {.wire = DType::f16});
    rank.whole_step(1);
    fake.hold(rank.a.get());
    rank.buckets.zero(OnStream{rank.a.get()});
    rank.buckets.begin_step({.stream = rank.a.get()});
    rank.buckets.ready(1, OnStream{rank.a.get()});
    fake.let_go(rank.a.get());
    rank.buckets.ready(0, OnStream{rank.a.get()});
    rank.buckets.finish(OnStream{rank.a.get()});
    settle(on, rank.a);
    expect(rank.is(rank.view(0), 0), "it is not zero");
  });
}

// The call is late on its stream, and a step on another stream comes after it all the same.
template <class Call>
void expect_before_step(OnGpu& on, const FakeCuda& fake, Rank& rank, Call call) {
  fake.hold(rank.b.get());
  call(rank.b.get());
  rank.set(rank.source.address(), 5, rank.a);
  rank.buckets.begin_step({.stream = rank.a.get()});
  rank.buckets.ready(0, rank.source_data(), OnStream{rank.a.get()});
  {
    const LaterGo go(fake, rank.b, 20ms);
    rank.buckets.finish(OnStream{rank.a.get()});
  }
  settle(on, rank.a);
  settle(on, rank.b);
  expect(rank.is(rank.view(0), 5), "the call came after the step");
}

// clip(0) makes gradients zero too. The stream is not the one that finish() with a stream has
// joined.
TEST_CASE("zero() and clip() come after the step before, and before the next one", "[gpu]") {
  const bool clips = GENERATE(false, true);
  const auto call = [clips](GradientBuckets& buckets, void* stream) {
    clips ? buckets.clip(0, OnStream{stream}) : buckets.zero(OnStream{stream});
  };
  run_ordered("zero", [&](Communicator& c, OnGpu& on, const FakeCuda& fake) {
    Rank rank(c, on, 8, {.wire = DType::bf16});
    for (int round = 0; round < 6; ++round) {
      rank.whole_step(1);
      call(rank.buckets, rank.b.get());
      settle(on, rank.b);
      for (std::size_t i = 0; i < 8; ++i) expect(rank.is(rank.view(i), 0), "it is not zero");
      settle(on, rank.a);
    }
    // The call is late, and the step uses another stream.
    Rank plain(c, on, 1);
    plain.whole_step(7);
    expect_before_step(on, fake, plain, [&](void* stream) { call(plain.buckets, stream); });
    fake.capture(plain.b.get(), true);
    refused(Errc::unsupported, clips ? "clip(): the stream is" : "zero(): the stream is",
            [&] { call(plain.buckets, plain.b.get()); });
    fake.capture(plain.b.get(), false);
  });
}

TEST_CASE("copies of local steps on a GPU come after all that uses the view, and before the rest",
          "[gpu]") {
  run_ordered("local", [&](Communicator& c, OnGpu& on, const FakeCuda& fake) {
    Rank rank(c, on, 1, {.wire = DType::bf16});
    GpuFloats first(on, count, 7), second(on, count, 8);
    const auto local_step = [&](const device::Stream& stream, const GpuFloats& gradient,
                                const device::Stream* zero = nullptr) {
      const GradientBuckets::Accumulation local(rank.buckets);
      rank.buckets.begin_step({.stream = stream.get()});
      rank.buckets.ready(0, gradient.buffer().data, OnStream{stream.get()});
      if (zero != nullptr) rank.buckets.zero(OnStream{zero->get()});
      rank.buckets.finish(OnStream{zero != nullptr ? zero->get() : stream.get()});
    };
    for (int round = 0; round < 6; ++round) {
      rank.whole_step(1);
      local_step(rank.b, first);
      settle(on, rank.a);
      settle(on, rank.b);
      expect(rank.is(rank.view(0), 7), "the step before came after the copy");
    }
    const auto with_a_late_copy = [&](float wanted, auto then) {
      fake.hold(rank.a.get());
      local_step(rank.a, first);
      {
        const LaterGo go(fake, rank.a, 20ms);
        then();
        settle(on, rank.b);
      }
      settle(on, rank.a);
      expect(rank.is(rank.view(0), wanted), [&] { return std::to_string(wanted) + " is wrong"; });
    };
    with_a_late_copy(8, [&] { local_step(rank.b, second); });
    with_a_late_copy(0, [&] { rank.buckets.zero(OnStream{rank.b.get()}); });
    // Zeroed in the middle of the step.
    fake.hold(rank.a.get());
    {
      const LaterGo go(fake, rank.a, 20ms);
      local_step(rank.a, first, &rank.b);
      settle(on, rank.b);
    }
    settle(on, rank.a);
    expect(rank.is(rank.view(0), 0), "zeroing came before the copy");
    // Work that comes behind finish() with a stream may write to the gradient that was given.
    fake.hold(rank.a.get());
    {
      const LaterGo go(fake, rank.a, 20ms);
      const GradientBuckets::Accumulation local(rank.buckets);
      rank.buckets.begin_step({.stream = rank.a.get()});
      rank.buckets.ready(0, second.buffer().data, OnStream{rank.a.get()});
      rank.buckets.finish(OnStream{rank.b.get()});
      rank.set(second.address(), 9, rank.b);
      settle(on, rank.b);
    }
    settle(on, rank.a);
    expect(rank.is(rank.view(0), 8), "the copy came too late");
    second.set(8);
    // The sum of local steps travels, although the parameter is unused in this one.
    with_a_late_copy(7, [&] {
      const std::size_t unused[] = {0};
      rank.buckets.begin_step({.unused = unused, .stream = rank.b.get()});
      rank.buckets.finish(OnStream{rank.b.get()});
    });
    with_a_late_copy(8, [&] {
      rank.buckets.begin_step({.stream = rank.b.get()});
      rank.buckets.ready(0, second.buffer().data, OnStream{rank.b.get()});
      rank.buckets.finish(OnStream{rank.b.get()});
    });
  });
}

}  // namespace
}  // namespace rondo::testing
