// SPDX-License-Identifier: Apache-2.0
// Programs change how their threads compute: another rounding mode, or subnormals as zeros. Ranks
// ended with different bits then, and asynchronous calls differed from run to run. Rondo computes
// in the default state on every thread, and leaves the program's state as it was.
#include <rondo/batch_norm.h>
#include <rondo/convert.h>
#include <rondo/gradients.h>

#include <bit>
#include <cfenv>
#include <cstdint>
#include <cstring>
#include <future>
#include <optional>
#include <string>
#include <vector>

#include "catch.h"
#include "support/ranks.h"

#if defined(__x86_64__)
#include <immintrin.h>
#endif

namespace rondo::testing {
namespace {

constexpr int modes[] = {FE_UPWARD, FE_DOWNWARD, FE_TOWARDZERO};
constexpr std::uint32_t tiny = 512;  // the bits of 2^-140

bool flushes() {
#if defined(__x86_64__)
  return _MM_GET_FLUSH_ZERO_MODE() == _MM_FLUSH_ZERO_ON && (_mm_getcsr() & 0x40) != 0;
#else
  return true;
#endif
}

// Subnormals, which flushing loses, and sums that are rounded to 1.
std::vector<float> input(int rank) {
  std::vector<float> values(1001,
                            std::bit_cast<float>(static_cast<std::uint32_t>(rank + 1) * tiny));
  for (std::size_t i = 0; i < values.size(); i += 2) values[i] = rank == 0 ? 1 : 0x1p-26F;
  return values;
}

// Compares bits: in the state of this thread every subnormal equals 0.
void check(const std::vector<float>& sum, const std::string& what) {
  for (std::size_t i = 0; i < sum.size(); ++i)
    expect(std::bit_cast<std::uint32_t>(sum[i]) == (i % 2 == 0 ? 0x3f800000u : 6 * tiny),
           [&] { return what + ": element " + std::to_string(i) + " has other bits"; });
}

void check_collectives(Communicator& c, int rank, const std::string& where) {
  const std::vector<float> in = input(rank);
  std::vector<float> out(in.size());
  c.all_reduce(buffer_of(in), buffer_of(out), ReduceOp::sum).wait();
  check(out, where + "waited for");
  out.assign(in.size(), 0);
  std::promise<void> ended;
  OpOptions unattended;
  unattended.unattended = true;
  const Work work = c.all_reduce(buffer_of(in), buffer_of(out), ReduceOp::sum, unattended);
  work.on_done([&](std::error_code) { ended.set_value(); });
  ended.get_future().wait();  // the background thread drives
  work.wait();
  check(out, where + "in the background");
}

void check_conversion() {
  const double wide[] = {1 + 0x1p-25, 0x1p-140};
  float narrow[2];
  convert(wide, DType::f64, narrow, DType::f32, 2);
  expect(std::bit_cast<std::uint32_t>(narrow[0]) == 0x3f800000u &&
             std::bit_cast<std::uint32_t>(narrow[1]) == tiny,
         "convert: other bits");
}

// Gradients that travel as bf16 are divided before they are sent, here as subnormals.
std::vector<std::uint32_t> gradients(Communicator& c) {
  GradientOptions options;
  options.wire = DType::bf16;
  GradientBuckets buckets(c, {Parameter{.name = "w", .shape = {1001}}}, options);
  std::vector<std::uint32_t> in(1001);
  for (std::size_t i = 0; i < in.size(); ++i) in[i] = 0x00200000 + static_cast<std::uint32_t>(i);
  buckets.begin_step();
  buckets.ready(0, in.data());
  buckets.finish();
  const auto* const out = static_cast<const std::uint32_t*>(buckets.gradient(0).data);
  return {out, out + in.size()};
}

// A layer's output and its statistics, of activations whose moments are rounded.
std::vector<std::uint32_t> normalized(Communicator& c) {
  SyncBatchNorm layer(c, 1);
  std::vector<float> x, y(50);
  for (int i = 0; i < 50; ++i) x.push_back(static_cast<float>(i * i * i + 7 * c.rank()) * 0x1p-20F);
  std::vector<std::uint32_t> bits(y.size());
  layer.forward({x.data(), x.size()}, {y.data(), y.size()});
  std::memcpy(bits.data(), y.data(), y.size() * sizeof(float));
  for (const Buffer& buffer : {layer.statistics().mean, layer.statistics().variance})
    bits.push_back(static_cast<std::uint32_t>(
        std::bit_cast<std::uint64_t>(*static_cast<const double*>(buffer.data))));
  return bits;
}

}  // namespace

TEST_CASE("ranks that compute in states of their own end with the same bits", "[issues][floats]") {
  for (const Over over : {Over::mem, Over::tcp, Over::shm})
    for (const char* const algorithm : {"", "doubling"}) {
      Setup setup;
      setup.size = 3;
      setup.over = over;
      setup.options.algorithm = algorithm;
      run_communicators(setup, "states", [](Communicator& communicator, int rank) {
        const std::vector<std::uint32_t> before = gradients(communicator),
                                         normal = normalized(communicator);
        std::fesetround(modes[rank]);
#if defined(__x86_64__)
        _mm_setcsr(_mm_getcsr() | 0x8040);  // flush to zero, subnormals are zeros
#endif
        check_collectives(communicator, rank, "");
        std::optional<Communicator> made_here = communicator.split(0, rank);
        check_collectives(*made_here, rank, "communicator of such a thread, ");
        check_conversion();
        expect(gradients(communicator) == before, "gradients have other bits");
        expect(normalized(communicator) == normal, "batch norm has other bits");
        expect(std::fegetround() == modes[rank] && flushes(), "the thread's state was changed");
      });
    }
}

}  // namespace rondo::testing
