// SPDX-License-Identifier: Apache-2.0
//
// Batch norm's kernels for GPUs, run on the processor, against plain long double code: all types,
// layouts, tails and alignments, hard numbers, and more elements than 32 bits count.
#include <rondo/agreement.h>
#include <sys/mman.h>

#include <cstring>
#include <optional>
#include <string>

#include "bn/device/image.h"
#include "bn/device/kernels.h"
#include "bn/device/launch.h"
#include "bn/reference.h"
#include "catch.h"
#include "support/device_kernels.h"
#include "support/image_check.h"

namespace rondo::testing {
namespace {

using namespace bn;

constexpr DType types[] = {DType::f64, DType::f32, DType::f16, DType::bf16};
constexpr TensorLayout layouts[] = {TensorLayout::nchw, TensorLayout::nhwc};
// What one rounding in a type, and the short sums of 16-bit types, may cost.
double sum_error(DType type) {
  return size_of(type) == 2 ? 1e-6 : 1e-14;
}

template <class Arguments>
void run(DeviceKernel kernel, DType type, const Arguments& arguments, unsigned blocks) {
  const HostKernel* const found = find_host_kernel(name_of(kernel, type));
  REQUIRE(found != nullptr);
  REQUIRE(found->argument_bytes == sizeof arguments);
  found->run(&arguments, blocks, device::block_threads, same_address);
}

// A batch in host memory, `shift` bytes behind an aligned address.
class Placed {
 public:
  Placed(const Batch& batch, DType type, TensorLayout layout, std::size_t shift)
      : tensor_(type, layout, batch, 0, batch.samples),
        shift_(shift),
        memory_((tensor_.bytes().size() + shift) / sizeof(Chunk) + 1) {
    std::memcpy(data(), tensor_.bytes().data(), tensor_.bytes().size());
  }
  std::byte* data() noexcept { return reinterpret_cast<std::byte*>(memory_.data()) + shift_; }
  Activations view() noexcept {
    Activations view = tensor_.view();
    view.data = data();
    return view;
  }
  Batch read(const Batch& shape) {
    Batch batch = shape;
    std::memcpy(tensor_.view().data, data(), tensor_.bytes().size());
    tensor_.unpack(batch, 0);
    return batch;
  }

 private:
  struct alignas(64) Chunk {
    std::byte bytes[64];
  };
  Tensor tensor_;
  std::size_t shift_;
  std::vector<Chunk> memory_;
};

struct Shape {
  std::size_t samples, channels, spatial;
};
constexpr Shape shapes[] = {{1, 1, 1},   {2, 3, 1},    {3, 1, 5},    {2, 5, 16},   {1, 8, 64},
                            {5, 16, 49}, {3, 40, 1},   {2, 300, 8},  {3, 2, 1600}, {150, 64, 1},
                            {9, 33, 31}, {1, 1, 9000}, {40, 4, 196}, {500, 3, 2}};

std::string text_of(DType type, TensorLayout layout, const Shape& shape, std::size_t shift) {
  return fmt::format("{} {} {} x {} x {}, shift {}", rondo::name_of(type),
                     layout == TensorLayout::nchw ? "nchw" : "nhwc", shape.samples, shape.channels,
                     shape.spatial, shift);
}

template <class Function>
void for_each_case(Function function) {
  for (const DType type : types)
    for (const TensorLayout layout : layouts)
      for (const Shape& shape : shapes)
        for (const std::size_t shift : {std::size_t{0}, size_of(type), std::size_t{1}}) {
          INFO(text_of(type, layout, shape, shift));
          function(type, layout, shape, shift);
        }
}

// Adds the partial sums of a kernel.
Numbers added(const SumArguments& arguments) {
  const std::size_t channels = arguments.shape.channels;
  Numbers sums(2 * channels);
  for (std::size_t part = 0; part < arguments.parts; ++part)
    for (std::size_t i = 0; i < 2 * channels; ++i)
      sums[i] += arguments.partials[2 * part * channels + i];
  return sums;
}

TEST_CASE("bn kernels for GPUs: sums of moments and gradients", "[device]") {
  for_each_case([](DType type, TensorLayout layout, const Shape& shape, std::size_t shift) {
    const auto& [samples, channels, spatial] = shape;
    const Batch x = stored(draw_batch(samples, channels, spatial, 1), type);
    const Batch dy = stored(draw_batch(samples, channels, spatial, 2), type);
    const Batch y = stored(draw_batch(samples, channels, spatial, 3), type);
    Placed on_x(x, type, layout, shift), on_dy(dy, type, layout, shift),
        on_y(y, type, layout, shift);
    Numbers center(channels);
    std::vector<std::uint32_t> wanted(channels);
    for (std::size_t c = 0; c < channels; ++c) {
      center[c] = static_cast<double>(static_cast<float>(static_cast<double>(c) - 0.8));
      wanted[c] = c % 3 != 1;
    }
    for (const bool gradients : {false, true})
      for (const bool masked : {false, true})
        for (const bool some : {false, true}) {
          if (masked && !gradients) continue;
          SumArguments arguments{};
          arguments.x = on_x.data();
          if (gradients) arguments.dy = on_dy.data();
          if (masked) arguments.y = on_y.data();
          arguments.shape = shape_of(on_x.view(), layout, channels);
          arguments.center = center.data();
          arguments.wanted = some ? wanted.data() : nullptr;
          cut(arguments, type);
          Numbers partials(partial_elements(arguments));
          arguments.partials = partials.data();
          run(gradients ? DeviceKernel::gradients : DeviceKernel::moments, type, arguments,
              blocks_of(arguments));
          const Numbers sums = added(arguments);
          for (std::size_t c = 0; c < channels; ++c) {
            if (some && !wanted[c]) continue;
            long double first = 0, second = 0, first_scale = 0, second_scale = 0;
            for (std::size_t n = 0; n < samples; ++n)
              for (std::size_t s = 0; s < spatial; ++s) {
                const std::size_t i = x.at(n, c, s);
                const long double away = static_cast<long double>(x.values[i]) - center[c];
                const long double gradient =
                    masked && y.values[i] <= 0 ? 0.0L : static_cast<long double>(dy.values[i]);
                const long double a = gradients ? gradient : away, b = a * away;
                first += a;
                second += b;
                first_scale += std::abs(a);
                second_scale += std::abs(b);
              }
            const double tolerance = sum_error(type);
            if (std::abs(sums[c] - first) > tolerance * first_scale ||
                std::abs(sums[channels + c] - second) > tolerance * second_scale)
              FAIL("channel " << c << " gradients " << gradients << " masked " << masked << " some "
                              << some << ": " << sums[c] << " and " << sums[channels + c]
                              << " instead of " << static_cast<double>(first) << " and "
                              << static_cast<double>(second));
          }
        }
  });
  SUCCEED();
}

// What one rank has on its GPU.
struct Rank {
  Rank(std::size_t channels)
      : center(channels),
        offset(channels),
        m2(channels),
        far(channels),
        section(1 + SectionHead::elements + 2 * channels, -7) {}
  Numbers center, offset, m2;
  std::vector<std::uint32_t> far;
  Numbers section;
  double* sums() { return section.data() + 1; }
};

void fold_moments(Rank& rank, FoldTask task, const SumArguments& sums, const Numbers& K, DType type,
                  TensorLayout layout, double count, bool put) {
  FoldArguments arguments{};
  arguments.task = task;
  arguments.parts = sums.parts;
  arguments.partials = count > 0 && task != FoldTask::nothing ? sums.partials : nullptr;
  arguments.channels = K.size();
  arguments.count = count;
  arguments.in_f32 = size_of(type) == 2;
  arguments.K = K.data();
  arguments.center = rank.center.data();
  arguments.offset = rank.offset.data();
  arguments.m2 = rank.m2.data();
  arguments.far = rank.far.data();
  arguments.type = type;
  if (task == FoldTask::moments) {
    arguments.x = sums.x;
    arguments.stride = layout == TensorLayout::nchw ? sums.shape.spatial : 1;
  }
  if (put) {
    arguments.section = rank.sums();
    arguments.history = K.data();
    arguments.head = {4, 5};
  }
  run(DeviceKernel::fold, type, arguments, blocks_of(arguments));
}

void take_moments(Rank& rank, const Batch& batch, DType type, TensorLayout layout,
                  const Numbers& K) {
  const auto count = static_cast<double>(batch.samples * batch.spatial);
  SumArguments sums{};
  if (count == 0)
    return fold_moments(rank, FoldTask::moments_again, sums, K, type, layout, 0, true);
  Placed x(batch, type, layout, 0);
  if (type == DType::f64 && layout == TensorLayout::nchw)  // Tensor stores no NaN
    std::memcpy(x.data(), batch.values.data(), batch.size() * sizeof(double));
  sums.x = x.data();
  sums.shape = shape_of(x.view(), layout, batch.channels);
  sums.center = K.data();
  cut(sums, type);
  Numbers partials(partial_elements(sums));
  sums.partials = partials.data();
  run(DeviceKernel::moments, type, sums, blocks_of(sums));
  fold_moments(rank, FoldTask::moments, sums, K, type, layout, count, false);
  sums.center = rank.center.data();
  sums.wanted = rank.far.data();
  run(DeviceKernel::moments, type, sums, blocks_of(sums));
  fold_moments(rank, FoldTask::moments_again, sums, K, type, layout, count, true);
}

// Merges the statistics of ranks as collectives would, and returns the number of collectives.
// K: the common point, then the next one.
int merge(std::vector<Rank>& ranks, Numbers& K, DType type, TensorLayout layout,
          const std::vector<Batch>& batches, Numbers& mean, Numbers& rest, Numbers& variance) {
  const std::size_t channels = K.size();
  Numbers m2(channels);
  for (int round = 1;; ++round) {
    Numbers sums(ranks[0].section.size());
    for (Rank& rank : ranks)
      for (std::size_t i = 0; i < sums.size(); ++i) sums[i] += rank.section[i];
    ChannelsArguments arguments{};
    arguments.task = ChannelsTask::merge;
    arguments.channels = channels;
    arguments.section = sums.data() + 1;
    arguments.mean = mean.data();
    arguments.rest = rest.data();
    arguments.m2 = m2.data();
    arguments.point = K.data();
    arguments.variance = variance.data();
    run(DeviceKernel::channels, type, arguments, blocks_of(arguments));
    if (sums[0] == 0 || round == 10) return round;
    for (std::size_t r = 0; r < ranks.size(); ++r)
      fold_moments(ranks[r], FoldTask::nothing, {}, K, type, layout,
                   static_cast<double>(batches[r].samples * batches[r].spatial), true);
  }
}

// The rows of FACTS: mean and standard deviation; and the point that the step before gave.
TEST_CASE("bn kernels for GPUs: moments of hard numbers", "[device]") {
  struct Row {
    double mean, deviation;
  };
  constexpr Row rows[] = {{0, 1e-4}, {1, 1e-4},   {100, 1e-4}, {1e4, 1}, {1e4, 1e-3},
                          {1e8, 1},  {-1e-3, 50}, {3, 0},      {0, 0},   {1e-30, 1e-33}};
  constexpr std::size_t channels = std::size(rows);
  for (const DType type : {DType::f64, DType::f32})
    for (const TensorLayout layout : layouts)
      for (const double away : {0.0, 1e-3, 40.0, 1e7, 1e20}) {
        INFO(rondo::name_of(type) << ", the point is " << away << " away");
        // The third rank has nothing, and the last one a mean of its own.
        std::vector<Batch> batches;
        std::uint64_t seed = 0;
        for (const std::size_t samples : {7, 30, 0, 2}) {
          Batch batch{samples, channels, 11, {}};
          for (std::size_t i = 0; i < batch.size(); ++i) {
            const Row& row = rows[i / batch.spatial % channels];
            batch.values.push_back(row.mean + row.deviation * (normal(++seed, i) + (samples == 2)));
          }
          batches.push_back(stored(batch, type));
        }
        Numbers K, mean(channels), rest(channels), variance(channels);
        for (const Row& row : rows) K.push_back(row.mean + away * (row.deviation + 1e-9));
        std::vector<Rank> ranks;
        for (const Batch& batch : batches)
          take_moments(ranks.emplace_back(channels), batch, type, layout, K);
        merge(ranks, K, type, layout, batches, mean, rest, variance);
        for (std::size_t c = 0; c < channels; ++c) {
          long double sum = 0, squares = 0, count = 0;
          const auto each = [&](auto function) {
            for (const Batch& batch : batches)
              for (std::size_t n = 0; n < batch.samples; ++n)
                for (std::size_t s = 0; s < batch.spatial; ++s)
                  function(static_cast<long double>(batch.values[batch.at(n, c, s)]));
          };
          each([&](long double x) {
            sum += x;
            ++count;
          });
          const long double m = sum / count;
          each([&](long double x) { squares += (x - m) * (x - m); });
          const double wanted = static_cast<double>(squares / count);
          INFO("channel of mean " << rows[c].mean << ", deviation " << rows[c].deviation);
          CHECK(std::abs(variance[c] - wanted) <= 1e-12 * wanted + 1e-25);
          CHECK(static_cast<double>(std::abs(mean[c] + rest[c] - m)) <=
                1e-12 * std::sqrt(wanted) + 2e-16 * std::abs(rows[c].mean));
        }
      }
}

TEST_CASE("bn kernels for GPUs: NaN and infinity stay in their channel, and leave the point",
          "[device]") {
  for (const double bad : {static_cast<double>(INFINITY), static_cast<double>(NAN)}) {
    Batch batch = draw_batch(4, 3, 9, 5);
    batch.values[batch.at(2, 1, 3)] = bad;
    std::vector<Batch> batches{batch};
    Numbers K{-1, 0.5, 1}, mean(3), rest(3), variance(3);
    std::vector<Rank> ranks;
    take_moments(ranks.emplace_back(3), batch, DType::f64, TensorLayout::nchw, K);
    CHECK(merge(ranks, K, DType::f64, TensorLayout::nchw, batches, mean, rest, variance) == 1);
    CHECK(K[1] == 0);
    CHECK_FALSE(std::isfinite(variance[1]));
    for (const std::size_t c : {0, 2}) {
      CHECK(std::isfinite(mean[c]));
      CHECK(variance[c] > 0);
    }
  }
}

TEST_CASE("bn kernels for GPUs: the head of a section", "[device]") {
  const auto section_of = [](const Numbers& K, SectionHead head) {
    Rank rank(K.size());
    FoldArguments arguments{};
    arguments.task = FoldTask::nothing;
    arguments.channels = K.size();
    arguments.count = 0x1p40;
    arguments.K = arguments.history = K.data();
    arguments.center = rank.center.data();
    arguments.offset = rank.offset.data();
    arguments.m2 = rank.m2.data();
    arguments.far = rank.far.data();
    arguments.section = rank.sums();
    arguments.head = head;
    run(DeviceKernel::fold, DType::f32, arguments, blocks_of(arguments));
    return rank.section;
  };
  Numbers K(1000);
  for (std::size_t i = 0; i < K.size(); ++i) K[i] = normal(1, i);
  const SectionHead head{0x123456789abcdef0, ~std::uint64_t{0}};
  const Numbers section = section_of(K, head);
  CHECK(section[0] == 0);
  CHECK(section[1] == 0x1p40);
  double wanted[2 * agreement_elements];
  put_agreement(std::span(wanted).first<agreement_elements>(), head.place);
  put_agreement(std::span(wanted).last<agreement_elements>(), head.layer);
  CHECK(std::equal(std::begin(wanted), std::end(wanted), section.begin() + 2));
  CHECK(section_of(K, head) == section);
  const auto history_of = [](const Numbers& of) {
    return Numbers(of.begin() + 2 + 2 * agreement_elements,
                   of.begin() + 2 + 3 * agreement_elements);
  };
  for (const std::size_t i : {0, 1, 255, 256, 999}) {
    Numbers other = K;
    other[i] = std::nextafter(other[i], 9.0);
    CHECK(history_of(section_of(other, head)) != history_of(section));
  }
  Numbers swapped = K;
  std::swap(swapped[3], swapped[700]);
  CHECK(history_of(section_of(swapped, head)) != history_of(section));
}

template <class Number>
struct MapCase {
  Number x, z, y, center, scale, slope, shift, gradient_center;
};

// The expressions of maps.h in the type of the passes, which rounds them in the same way.
template <class Number>
double forward_of(const MapCase<Number>& m, bool adds, bool relu) {
  Number value = (m.x - m.center) * m.scale;
  value += m.shift;
  if (adds) value += m.z;
  return relu && value <= 0 ? 0 : static_cast<double>(value);
}
template <class Number>
double backward_of(const MapCase<Number>& m, bool masked, bool fixed) {
  const Number dy = masked && m.y <= 0 ? Number{0} : m.z;
  if (fixed) return static_cast<double>(dy * m.scale);
  const Number direct = (dy - m.gradient_center) * m.scale, through = (m.x - m.center) * m.slope;
  const Number rest = through + m.shift;
  return static_cast<double>(direct + rest);
}

template <class Number>
void check_maps(DType type, TensorLayout layout, const Shape& shape, std::size_t shift) {
  const auto& [samples, channels, spatial] = shape;
  const Batch x = stored(draw_batch(samples, channels, spatial, 1), type);
  const Batch z = stored(draw_batch(samples, channels, spatial, 2), type);
  const Batch y = stored(draw_batch(samples, channels, spatial, 3), type);
  std::vector<Number> lines(5 * channels);
  for (std::size_t i = 0; i < lines.size(); ++i) lines[i] = static_cast<Number>(normal(7, i));
  for (unsigned choice = 0; choice < 16; ++choice) {
    const bool backward = choice & 1, first = choice & 2, second = choice & 4, alias = choice & 8;
    Placed on_x(x, type, layout, shift), on_z(z, type, layout, shift), on_y(y, type, layout, shift),
        out(x, type, layout, shift), dz(x, type, layout, shift);
    Placed& to = alias ? (backward ? on_z : on_x) : out;
    MapArguments arguments{};
    arguments.x = on_x.data();
    arguments.out = to.data();
    arguments.lines = reinterpret_cast<const std::byte*>(lines.data());
    arguments.shape = shape_of(on_x.view(), layout, channels);
    // forward: first adds z, second is the ReLU. backward: first masks, second is fixed.
    if (backward || first) arguments.second = on_z.data();
    if (backward && first) arguments.y = on_y.data();
    if (backward) arguments.second_out = dz.data();
    arguments.relu = !backward && second;
    arguments.fixed = backward && second;
    arguments.access = access_of(
        arguments.shape, type,
        {arguments.x, arguments.second, arguments.y, arguments.out, arguments.second_out});
    run(backward ? DeviceKernel::backward : DeviceKernel::forward, type, arguments,
        blocks_of(arguments, type));
    Batch wanted = x, wanted_dz = x;
    for (std::size_t i = 0; i < x.size(); ++i) {
      const std::size_t c = i / spatial % channels;
      const auto line = [&, step = channels](std::size_t which) { return lines[which * step + c]; };
      const MapCase<Number> one{static_cast<Number>(x.values[i]),
                                static_cast<Number>(z.values[i]),
                                static_cast<Number>(y.values[i]),
                                line(0),
                                line(1),
                                line(2),
                                line(3),
                                line(4)};
      wanted.values[i] =
          backward ? backward_of(one, first, second) : forward_of(one, first, second);
      wanted_dz.values[i] = first && y.values[i] <= 0 ? 0 : z.values[i];
    }
    INFO("choice " << choice);
    // REQUIRE would print the numbers.
    REQUIRE((to.read(x).values == stored(wanted, type).values));
    if (backward) REQUIRE((dz.read(x).values == stored(wanted_dz, type).values));
  }
}

TEST_CASE("bn kernels for GPUs: elementwise passes", "[device]") {
  for_each_case([](DType type, TensorLayout layout, const Shape& shape, std::size_t shift) {
    if (type == DType::f64)
      check_maps<double>(type, layout, shape, shift);
    else
      check_maps<float>(type, layout, shape, shift);
  });
}

TEST_CASE("bn kernels for GPUs: a ReLU keeps NaN, forward and backward", "[device]") {
  const float x[] = {NAN, -1, 1, 2};
  float y[4], dx[4], dz[4];
  const float lines[5] = {0, 1, 0, 0, 0};
  MapArguments arguments{};
  arguments.x = reinterpret_cast<const std::byte*>(x);
  arguments.out = reinterpret_cast<std::byte*>(y);
  arguments.lines = reinterpret_cast<const std::byte*>(lines);
  arguments.shape = {1, 4, 1, true};
  arguments.access = Access::elements;
  arguments.relu = true;
  run(DeviceKernel::forward, DType::f32, arguments, 1);
  CHECK(std::isnan(y[0]));
  CHECK(y[1] == 0);
  CHECK(y[3] == 2);
  const float dy[] = {5, 6, 7, 8};
  arguments.second = reinterpret_cast<const std::byte*>(dy);
  arguments.y = reinterpret_cast<const std::byte*>(y);
  arguments.out = reinterpret_cast<std::byte*>(dx);
  arguments.second_out = reinterpret_cast<std::byte*>(dz);
  run(DeviceKernel::backward, DType::f32, arguments, 1);
  CHECK(dz[0] == 5);
  CHECK(dz[1] == 0);
  CHECK(dz[2] == 7);
}

// Memory of zeros that takes none, except where it is written.
class Sparse {
 public:
  explicit Sparse(std::size_t bytes) : bytes_(bytes) {
    data_ = ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE,
                   MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  }
  ~Sparse() {
    if (data_ != MAP_FAILED) ::munmap(data_, bytes_);
  }
  bool good() const noexcept { return data_ != MAP_FAILED; }
  std::byte* data() const noexcept { return static_cast<std::byte*>(data_); }

 private:
  std::size_t bytes_;
  void* data_;
};

// Runs one block of a grid that would take too long as a whole.
template <class Kernel>
void run_block(const typename Kernel::Arguments& arguments, unsigned block, unsigned blocks) {
  static typename Kernel::Shared shared;
  for (int phase = 0; phase < Kernel::phases; ++phase)
    for (unsigned i = 0; i < device::block_threads; ++i)
      Kernel::run(phase, arguments, shared, {i, device::block_threads, block, blocks});
}

TEST_CASE("bn kernels for GPUs: more than 2^32 elements", "[device]") {
  constexpr std::uint64_t spatial = std::uint64_t{5} << 30;
  const Sparse memory(2 * spatial), out(2 * spatial);
  if (!memory.good() || !out.good()) return;
  for (const bool runs : {true, false}) {
    std::uint16_t* const last = reinterpret_cast<std::uint16_t*>(memory.data()) + spatial - 1;
    *last = 0x4000;  // 2
    const double center = 0.5;
    SumArguments sums{};
    sums.x = memory.data();
    sums.shape = {1, spatial, 1, runs};
    sums.center = &center;
    cut(sums, DType::f16);
    // Many parts, of which the last one runs.
    sums.parts = 1 << 20;
    Numbers partials(partial_elements(sums));
    sums.partials = partials.data();
    run_block<Sums<DeviceF16, false>>(sums, sums.parts - 1, sums.parts);
    const double elements = static_cast<double>(spatial >> 20);
    CHECK(partials[partials.size() - 2] == 1.5 - 0.5 * (elements - 1));
    CHECK(partials[partials.size() - 1] == 1.5 * 1.5 + 0.25 * (elements - 1));
    const float lines[5] = {1, 3, 0, 10, 0};
    MapArguments map{};
    map.x = memory.data();
    map.out = out.data();
    map.lines = reinterpret_cast<const std::byte*>(lines);
    map.shape = sums.shape;
    map.access = access_of(map.shape, DType::f16, {map.x, map.out});
    const auto loads =
        static_cast<std::uint64_t>(map.access == Access::packs ? spatial / 8 : spatial);
    Maps<DeviceF16, false>::Shared none;
    // Only the last load.
    Maps<DeviceF16, false>::run(
        0, map, none,
        {static_cast<unsigned>((loads - 1) % 1024), 1024, static_cast<unsigned>((loads - 1) / 1024),
         static_cast<unsigned>(loads / 1024 + 1)});
    std::uint16_t* const to = reinterpret_cast<std::uint16_t*>(out.data()) + spatial - 1;
    CHECK(*to == 0x4a80);  // 13
    *to = 0;
  }
}

TEST_CASE("bn kernels for GPUs: the image has the kernels of the list and no others",
          "[.][image]") {
  CHECK(check_image(device_image(), "rondo_bn_", /*fuses=*/true) == 18);  // merges ask for it
}

}  // namespace
}  // namespace rondo::testing
