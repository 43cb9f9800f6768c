// SPDX-License-Identifier: Apache-2.0
//
// The kernels for GPUs, run on the processor, against the scalar kernels: all types, ops, lengths
// and alignments, several outputs, with scales and finish.
#include <algorithm>
#include <cstring>
#include <string>
#include <vector>

#include "catch.h"
#include "collectives/kernels/device/image.h"
#include "collectives/kernels/device/launch.h"
#include "collectives/kernels/pair.h"
#include "reduce_reference.h"
#include "support/device_kernels.h"
#include "support/effort.h"
#include "support/image_check.h"

using namespace rondo;
using namespace reduce_reference;

namespace {

constexpr std::size_t margin = 64;
constexpr std::byte untouched{0x5a};

// Where the buffers begin. together: at addresses of elements that agree modulo 16. elements: at
// different addresses of elements. odd: at odd addresses that agree modulo 16. anywhere: at any.
enum class Place { together, elements, odd, anywhere };
constexpr Place places[] = {Place::together, Place::elements, Place::odd, Place::anywhere};

struct Trial {
  std::size_t sources = 1, outputs = 1;
  std::size_t count = 0;
  Place place = Place::together;
  std::size_t shift = 0;  // changes where buffers begin
  int alias = -1;         // the source that is also the first output
  double scale = 1;
  std::size_t ranks = 1;
  bool input_scales = false;
  bool in_steps = false;
  unsigned blocks = 1, threads = 32;
};

std::string text_of(const Trial& t) {
  return std::to_string(t.sources) + " sources, " + std::to_string(t.outputs) + " outputs, " +
         std::to_string(t.count) + " elements, place " + std::to_string(static_cast<int>(t.place)) +
         ", shift " + std::to_string(t.shift) + ", alias " + std::to_string(t.alias) + ", scale " +
         std::to_string(t.scale) + ", " + std::to_string(t.ranks) + " ranks" +
         (t.input_scales ? ", input scales" : "") + (t.in_steps ? ", in steps" : "") + ", " +
         std::to_string(t.blocks) + " blocks of " + std::to_string(t.threads);
}

class DeviceHarness {
 public:
  DeviceHarness(DType type, ReduceOp op, std::size_t most_count, std::size_t most_buffers = 8)
      : type_(type), op_(op), element_(size_of(type)) {
    const std::size_t bytes = most_count * element_ + 3 * margin;
    for (std::uint32_t i = 0; i < most_buffers; ++i) {
      sources_.push_back(make_source(type, 31 * i + 7, bytes));
      outputs_.emplace_back().reserve(bytes);
    }
    wanted_.resize(bytes);
  }

  // Returns what is wrong, or an empty string.
  std::string run(const Trial& t) {
    const std::size_t bytes = t.count * element_;
    std::vector<const std::byte*> in;
    std::vector<std::byte*> out;
    std::vector<double> scales;
    static constexpr double some_scales[] = {0.125, 1, -3.7, 1e-3, 0.1, 2};
    for (std::size_t i = 0; i < t.sources; ++i) {
      in.push_back(begin(sources_[i], t, i));
      if (t.input_scales) scales.push_back(some_scales[(i + t.shift) % std::size(some_scales)]);
    }
    for (std::size_t i = 0; i < t.outputs; ++i) {
      outputs_[i].assign(bytes + 3 * margin, untouched);
      out.push_back(begin(outputs_[i], t, i + t.sources));
    }
    expect(t, in, scales);
    if (t.alias >= 0) {
      std::memcpy(out[0], in[static_cast<std::size_t>(t.alias)], bytes);
      in[static_cast<std::size_t>(t.alias)] = out[0];
    }
    const kernels::DeviceReduction reduction{type_, op_, t.scale, t.ranks, t.in_steps};
    const kernels::ReduceArguments arguments =
        kernels::reduce_arguments(reduction, in, scales, out, t.count);
    testing::find_host_kernel(kernels::reduce_kernel(type_))
        ->run(&arguments, t.blocks, t.threads, testing::same_address);
    for (std::size_t i = 0; i < t.outputs; ++i) {
      const std::size_t wrong = first_difference(type_, out[i], wanted_.data(), t.count);
      if (wrong != t.count)
        return "element " + std::to_string(wrong) + " of output " + std::to_string(i) + " differs";
      const std::byte *const begin = outputs_[i].data(), *const end = begin + outputs_[i].size(),
                             *const first = out[i], *const last = first + bytes;
      if (std::find_if(begin, first, written) != first)
        return "bytes before output " + std::to_string(i) + " were written";
      if (std::find_if(last, end, written) != end)
        return "bytes behind output " + std::to_string(i) + " were written";
    }
    return {};
  }

 private:
  static bool written(std::byte byte) { return byte != untouched; }

  std::byte* begin(std::vector<std::byte>& buffer, const Trial& t, std::size_t index) const {
    const auto address = reinterpret_cast<std::uintptr_t>(buffer.data());
    const std::size_t even = margin - address % 16;
    std::size_t offset = 0;
    if (t.place == Place::together) offset = t.shift % (16 / element_) * element_;
    if (t.place == Place::elements) offset = (t.shift + index) % (16 / element_) * element_;
    if (t.place == Place::odd) offset = (2 * t.shift + 1) % 16;
    if (t.place == Place::anywhere) offset = (t.shift + 5 * index) % 16;
    return buffer.data() + even + offset;
  }

  // Fills wanted_.
  void expect(const Trial& t, const std::vector<const std::byte*>& in,
              const std::vector<double>& scales) {
    if (t.in_steps && t.sources > 2 && !is_integer(type_) && element_ <= 2)
      return expect_steps(t, in, scales);
    const kernels::Finish finish{t.scale,
                                 op_ == ReduceOp::mean ? static_cast<double>(t.ranks) : 1.0};
    if (t.input_scales)
      kernels::find_scaled_sum(type_, base::Isa::scalar)(wanted_.data(), in.data(), scales.data(),
                                                         in.size(), t.count, finish);
    else
      kernels::find_reduce(type_, op_, base::Isa::scalar)(wanted_.data(), in.data(), in.size(),
                                                          t.count, finish);
  }

  void expect_steps(const Trial& t, const std::vector<const std::byte*>& in,
                    const std::vector<double>& scales) {
    const kernels::PairReduction pair(type_, op_, t.scale, t.ranks);
    const auto input = [&](std::size_t i) {
      return kernels::PairReduction::Value{in[i], true, scales.empty() ? 1 : scales[i]};
    };
    kernels::PairReduction::Value before = input(0);
    for (std::size_t i = 1; i < in.size(); ++i) {
      pair.combine(wanted_.data(), before, input(i), t.count, i + 1 == in.size());
      before = {wanted_.data(), false};
    }
  }

  const DType type_;
  const ReduceOp op_;
  const std::size_t element_;
  std::vector<std::vector<std::byte>> sources_, outputs_;
  std::vector<std::byte> wanted_;
};

template <class F>
void for_each_reduction(F&& f) {
  for (int type = 0; type < dtype_count; ++type)
    for (int op = 0; op < reduce_op_count; ++op)
      if (supports(static_cast<DType>(type), static_cast<ReduceOp>(op)))
        f(static_cast<DType>(type), static_cast<ReduceOp>(op));
}

bool sums_floats(DType type, ReduceOp op) {
  return !is_integer(type) && (op == ReduceOp::sum || op == ReduceOp::mean);
}

void require(DeviceHarness& harness, DType type, ReduceOp op, const Trial& trial) {
  const std::string wrong = harness.run(trial);
  if (!wrong.empty())
    FAIL(name_of(type) << " " << name_of(op) << ", " << text_of(trial) << ": " << wrong);
}

}  // namespace

TEST_CASE("device kernels give the bits of the scalar kernels", "[device]") {
  constexpr std::size_t most_count = 4103;
  static constexpr std::size_t outputs[] = {1, 2, 3, 8};
  static constexpr double scales[] = {1, 0.25, 1, 1.7, 1, 0.1};
  static constexpr unsigned threads[] = {32, 256, 1, 7};
  const std::size_t step = testing::few_cases() ? 7 : 1;
  std::size_t turn = 0;
  for_each_reduction([&](DType type, ReduceOp op) {
    DeviceHarness harness(type, op, most_count);
    const auto run = [&](std::size_t sources, std::size_t count, Place place) {
      ++turn;
      Trial trial{.sources = sources, .outputs = outputs[turn % 4], .count = count, .place = place};
      trial.shift = turn / 3 % 16;
      trial.alias = turn % 5 == 0 ? static_cast<int>(turn / 5 % sources) : -1;
      trial.scale = is_integer(type) ? 1 : scales[turn % std::size(scales)];
      trial.ranks = turn % 3 == 0 ? 1 : turn / 3 % 9 + 1;
      trial.input_scales = sums_floats(type, op) && turn / 2 % 3 == 0;
      trial.blocks = 1 + static_cast<unsigned>(turn % 3);
      trial.threads = threads[turn / 7 % 4];
      require(harness, type, op, trial);
    };
    for (const std::size_t sources : {1, 2, 3, 5, 8})
      for (const Place place : places) {
        for (std::size_t count = 0; count <= 70; count += step) run(sources, count, place);
        run(sources, most_count - sources, place);
      }
  });
}

TEST_CASE("device kernels that round after every source give the bits of sums passed on",
          "[device]") {
  constexpr std::size_t most_count = 200;
  std::size_t turn = 0;
  for_each_reduction([&](DType type, ReduceOp op) {
    DeviceHarness harness(type, op, most_count);
    for (const std::size_t sources : {1, 2, 3, 5, 8})
      for (const double scale : {1.0, 0.3, 4.0, 0.0})
        for (const std::size_t count : {std::size_t{13}, most_count}) {
          Trial trial{.sources = sources, .count = count, .place = places[++turn % 4]};
          trial.ranks = sources;
          trial.scale = is_integer(type) ? 1 : scale;
          trial.in_steps = true;
          trial.input_scales = sums_floats(type, op) && turn / 4 % 2 == 0;
          require(harness, type, op, trial);
        }
  });
}

TEST_CASE("device kernels take 64 sources and 64 outputs", "[device]") {
  for (const DType type : {DType::f32, DType::bf16, DType::i8}) {
    DeviceHarness harness(type, ReduceOp::sum, 100, kernels::ReduceArguments::most);
    for (const Place place : places)
      require(harness, type, ReduceOp::sum,
              {.sources = kernels::ReduceArguments::most,
               .outputs = kernels::ReduceArguments::most,
               .count = 100,
               .place = place,
               .alias = 63});
  }
}

TEST_CASE("a copy for several places keeps every bit", "[device]") {
  std::vector<std::byte> in = make_source(DType::f16, 1, 1000), outs[3];
  std::vector<std::byte*> out;
  for (std::vector<std::byte>& each : outs) out.push_back((each.assign(1000, untouched), &each[1]));
  const kernels::ReduceArguments arguments = kernels::copy_arguments(&in[1], out, 998);
  testing::find_host_kernel(kernels::copy_kernel())
      ->run(&arguments, 2, device::block_threads, testing::same_address);
  in.front() = in.back() = untouched;
  for (const std::vector<std::byte>& each : outs) CHECK(each == in);
}

TEST_CASE("every type that can be reduced has a kernel, and its pointers can be changed",
          "[device]") {
  CHECK(kernels::reduce_kernel(static_cast<DType>(dtype_count)) == nullptr);
  for (int i = 0; i < dtype_count; ++i) {
    const auto type = static_cast<DType>(i);
    INFO(name_of(type));
    CHECK(kernels::reduce_kernel(type) == "rondo_reduce_" + std::string(name_of(type)));
    const testing::HostKernel* kernel = testing::find_host_kernel(kernels::reduce_kernel(type));
    REQUIRE(kernel != nullptr);
    CHECK(kernel->argument_bytes == sizeof(kernels::ReduceArguments));
    // Source and output have made-up addresses.
    const std::vector<std::byte> in(24, std::byte{1});
    std::vector<std::byte> out(24);
    const auto address = [](std::uintptr_t number) { return reinterpret_cast<std::byte*>(number); };
    const std::byte* const source = address(0x1000);
    std::byte* const output = address(0x2000);
    const kernels::ReduceArguments arguments =
        kernels::reduce_arguments({type, ReduceOp::sum}, std::span(&source, 1), {},
                                  std::span(&output, 1), 24 / size_of(type));
    kernel->run(&arguments, 1, 4, [&](std::uint64_t at, std::size_t bytes) {
      CHECK(bytes == 24);
      return at == 0x1000 ? const_cast<std::byte*>(in.data()) : out.data();
    });
    CHECK(out == in);
  }
}

TEST_CASE("a grid has a thread for each 16 bytes, within its limit", "[device]") {
  const auto blocks = [](std::uint64_t bytes) { return kernels::grid_of(bytes, 528).blocks; };
  CHECK(kernels::grid_of(0, 528).threads == device::block_threads);
  CHECK(blocks(0) == 1);
  CHECK(blocks(4096) == 1);
  CHECK(blocks(4097) == 2);
  CHECK(blocks(std::uint64_t{1} << 40) == 528);
  CHECK(kernels::grid_of(4096, 0).blocks == 1);
}

TEST_CASE("the image for GPUs has the kernels of the list and no others", "[.][image]") {
  CHECK(testing::check_image(kernels::device_image(), "rondo_reduce_") == dtype_count);
}
