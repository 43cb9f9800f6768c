// SPDX-License-Identifier: Apache-2.0
//
// Batch norm's kernels for GPUs, run on the processor, against plain long double code: all types,
// layouts, tails and alignments, hard numbers, and more elements than 32 bits count.
#include <rondo/agreement.h>
#include <sys/mman.h>

#include <cstring>

#include "bn/layer/device/image.h"
#include "bn/layer/device/kernels.h"
#include "bn/layer/device/launch.h"
#include "bn/reference.h"
#include "catch.h"
#include "support/device_kernels.h"
#include "support/effort.h"
#include "support/image_check.h"

namespace rondo::testing::gpu_kernels {
namespace {

using namespace layer;

constexpr DType types[] = {DType::f64, DType::f32, DType::f16, DType::bf16};
constexpr TensorLayout layouts[] = {TensorLayout::nchw, TensorLayout::nhwc};
// Allows what one rounding in a type, and the short sums of 16-bit types, may cost.
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
    std::ranges::copy(std::as_bytes(std::span(tensor_.bytes())), data());
  }
  std::byte* data() noexcept { return memory_.data()->bytes + shift_; }
  Activations view() noexcept {
    const Activations view = tensor_.view();
    return {data(), view.samples, view.spatial};
  }
  Batch read(Batch batch) {
    std::memcpy(tensor_.bytes().data(), data(), tensor_.bytes().size());
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

// Calls the function for each type, layout and shape that is drawn, with tensors at aligned
// addresses, at multiples of an element, and at odd addresses.
template <class Function>
void for_each_case(Function function) {
  std::uint64_t number = 0;
  for (const DType type : types)
    for (const TensorLayout layout : layouts)
      for (const Shape& shape : shapes)
        for (const std::size_t shift : {std::size_t{0}, size_of(type), std::size_t{1}}) {
          if (!drawn(number++)) continue;
          INFO(rondo::name_of(type)
               << ' ' << (layout == TensorLayout::nchw ? "nchw " : "nhwc ") << shape.samples
               << " x " << shape.channels << " x " << shape.spatial << ", shift " << shift);
          function(type, layout, shape, shift);
        }
}

TEST_CASE("bn kernels for GPUs: sums of moments and gradients", "[kernels]") {
  for_each_case([](DType type, TensorLayout layout, const Shape& shape, std::size_t shift) {
    const auto& [samples, channels, spatial] = shape;
    const Batch x = stored(draw_batch(samples, channels, spatial, 1), type);
    const Batch dy = stored(draw_batch(samples, channels, spatial, 2), type);
    Placed on_x(x, type, layout, shift), on_dy(dy, type, layout, shift);
    Numbers center;
    std::vector<std::uint32_t> wanted;
    for (std::size_t c = 0; c < channels; ++c) {
      center.push_back(static_cast<double>(static_cast<float>(static_cast<double>(c) - 0.8)));
      wanted.push_back(c % 3 != 1);
    }
    for (const bool gradients : {false, true}) {
      const PlainSums plain(x, center, gradients ? &dy : nullptr);
      for (const bool some : {false, true}) {
        SumArguments arguments{};
        arguments.x = on_x.data();
        if (gradients) arguments.dy = on_dy.data();
        arguments.shape = shape_of(on_x.view(), layout, channels);
        arguments.center = center.data();
        arguments.wanted = some ? wanted.data() : nullptr;
        cut(arguments, type);
        Numbers partials(partial_elements(arguments)), sums(2 * channels);
        arguments.partials = partials.data();
        run(gradients ? DeviceKernel::gradients : DeviceKernel::moments, type, arguments,
            blocks_of(arguments));
        for (std::size_t i = 0; i < arguments.parts * sums.size(); ++i)
          sums[i % sums.size()] += partials[i];
        std::size_t wrong = 0;
        for (std::size_t i = 0; i < sums.size(); ++i)
          wrong += (!some || wanted[i % channels]) &&
                   !(std::abs(sums[i] - plain.sums[i]) <= sum_error(type) * plain.scales[i]);
        INFO("gradients " << gradients << " some " << some);
        CHECK(wrong == 0);
      }
    }
  });
}

TEST_CASE("bn kernels for GPUs: the head of a section", "[kernels]") {
  const auto section_of = [](const Numbers& K, SectionHead head) {
    const std::size_t channels = K.size();
    Numbers arrays(array_count * channels), section(1 + SectionHead::elements + 2 * channels, -7);
    std::ranges::copy(K, arrays.begin() + static_cast<std::ptrdiff_t>(point_at * channels));
    ChannelArguments arguments{};
    arguments.task = ChannelTask::nothing;
    arguments.type = DType::f32;
    arguments.channels = channels;
    arguments.count = 0x1p40;
    arguments.arrays = arrays.data();
    arguments.section = {section.data() + 1, section.data()};
    arguments.head = head;
    run(DeviceKernel::fold, DType::f32, arguments, blocks_of_fold(channels));
    return section;
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
void check_maps(DType type, TensorLayout layout, const Shape& shape, std::size_t shift) {
  const auto& [samples, channels, spatial] = shape;
  const Batch x = stored(draw_batch(samples, channels, spatial, 1), type);
  const Batch dy = stored(draw_batch(samples, channels, spatial, 2), type);
  std::vector<Number> lines(coefficient_count * channels);
  for (std::size_t i = 0; i < lines.size(); ++i) lines[i] = static_cast<Number>(normal(7, i));
  for (const bool backward : {false, true})
    for (const bool in_place : {false, true}) {
      Placed on_x(x, type, layout, shift), on_dy(dy, type, layout, shift),
          out(x, type, layout, shift);
      Placed& to = in_place ? (backward ? on_dy : on_x) : out;
      MapArguments arguments{};
      arguments.x = on_x.data();
      arguments.dy = backward ? on_dy.data() : nullptr;
      arguments.out = to.data();
      arguments.lines = reinterpret_cast<const std::byte*>(lines.data());
      arguments.shape = shape_of(on_x.view(), layout, channels);
      arguments.access =
          access_of(arguments.shape, type, {arguments.x, arguments.dy, arguments.out});
      run(backward ? DeviceKernel::backward : DeviceKernel::forward, type, arguments,
          blocks_of(arguments, type));
      Batch wanted = x;
      for (std::size_t i = 0; i < x.size(); ++i) {
        const std::size_t c = i / spatial % channels;
        const auto line = [&, step = channels](std::size_t which) {
          return lines[which * step + c];
        };
        // The expressions of maps.h in the type of the passes, which rounds them in the same way.
        const Number away = static_cast<Number>(x.values[i]) - line(0);
        Number value = away * line(1);
        if (backward) {
          const Number direct = (static_cast<Number>(dy.values[i]) - line(4)) * line(1),
                       through = away * line(2);
          const Number rest = through + line(3);
          value = direct + rest;
        } else {
          value += line(3);
        }
        wanted.values[i] = static_cast<double>(value);
      }
      INFO("backward " << backward << " in place " << in_place);
      // REQUIRE would print the numbers.
      REQUIRE((to.read(x).values == stored(wanted, type).values));
    }
}

TEST_CASE("bn kernels for GPUs: elementwise passes", "[kernels]") {
  for_each_case([](DType type, TensorLayout layout, const Shape& shape, std::size_t shift) {
    if (type == DType::f64)
      check_maps<double>(type, layout, shape, shift);
    else
      check_maps<float>(type, layout, shape, shift);
  });
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

TEST_CASE("bn kernels for GPUs: more than 2^32 elements", "[kernels]") {
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
    run_block<Sums<RealF16, false>>(sums, sums.parts - 1, sums.parts);
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
    Maps<RealF16, false>::Shared none;
    // Only the last load.
    Maps<RealF16, false>::run(
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
}  // namespace rondo::testing::gpu_kernels
